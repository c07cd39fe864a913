package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"trireme.dev/client/apierr"
	"trireme.dev/kit/daemon"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) execCommand() *cobra.Command {
	var container string
	var stdin, tty bool
	cmd := &cobra.Command{
		Use:   "exec (POD | TYPE/NAME) [-c CONTAINER] [-it] -- COMMAND...",
		Short: "Run a command in a container",
		Example: `  trireme exec web-1 -- env
  trireme exec -it web-1 -- sh
  trireme exec web-1 -i -- tar x < files.tar`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || cmd.ArgsLenAtDash() == 0:
				return usage("%s takes a pod first, then -- and the command", cmd.CommandPath())
			case len(args) == 1:
				return usage("say what to run, as in `%s %s -- sh`", cmd.CommandPath(), args[0])
			case cmd.ArgsLenAtDash() > 1:
				return usage("%s takes one pod before --", cmd.CommandPath())
			}
			return nil
		},
		RunE: c.online(func(ctx context.Context, args []string) error {
			pod, err := c.podOf(ctx, args[0])
			if err != nil {
				return err
			}
			if container == "" {
				container = c.containerOf(pod)
			}
			return c.exec(ctx, &corev1.ExecStart{
				Namespace: pod.GetMetadata().GetNamespace(), Name: pod.GetMetadata().GetName(), Container: container,
				Command: args[1:], Stdin: stdin, Stdout: true, Stderr: !tty, Tty: tty,
			})
		}),
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "`name` of the container (default: the first)")
	cmd.Flags().BoolVarP(&stdin, "stdin", "i", false, "pass standard input on")
	cmd.Flags().BoolVarP(&tty, "tty", "t", false, "give the command a terminal")
	cmd.ValidArgsFunction = c.completePods
	return cmd
}

// exec runs a command with this program's streams. With tty the local terminal becomes a mere pipe until it ends.
func (c *cli) exec(ctx context.Context, start *corev1.ExecStart) error {
	s := &execStreams{stdout: c.Out, stderr: c.Err}
	if start.GetStdin() {
		s.stdin = c.In
	}
	if start.GetTty() {
		if in, is := terminalOf(c.In); is && start.GetStdin() {
			state, err := term.MakeRaw(in)
			if err != nil {
				return fmt.Errorf("prepare the terminal: %w", err)
			}
			defer func() { _ = term.Restore(in, state) }()
		} else if start.GetStdin() {
			c.say("Unable to use a TTY - input is not a terminal")
		}
		if out, is := terminalOf(c.Out); is {
			sizes := make(chan os.Signal, 1)
			signal.Notify(sizes, syscall.SIGWINCH)
			defer signal.Stop(sizes)
			s.resized = sizes
			s.size = func() *corev1.TerminalSize {
				width, height, err := term.GetSize(out)
				if err != nil || width <= 0 || height <= 0 {
					return nil
				}
				return &corev1.TerminalSize{Width: uint32(width), Height: uint32(height)}
			}
			start.Size = s.size()
		}
	}
	exit, err := c.execIn(ctx, start, s)
	if err != nil {
		return err
	}
	return exitError(exit)
}

// exitError passes a command's exit code on.
func exitError(exit *corev1.ExitStatus) error {
	if exit.GetCode() == 0 {
		return nil
	}
	message := exit.GetMessage()
	if message == "" {
		message = fmt.Sprintf("command terminated with exit code %d", exit.GetCode())
	}
	return &daemon.ExitError{Code: int(exit.GetCode()), Err: errors.New(message)}
}

// execStreams are what a command in a container reads and writes here.
type execStreams struct {
	stdin          io.Reader // nil for none
	stdout, stderr io.Writer
	resized        <-chan os.Signal // nil where the terminal has no size
	size           func() *corev1.TerminalSize
}

// execIn runs a command in a container until it ends. Where the reader of standard input blocks, one goroutine stays
// behind in it until it returns.
func (c *cli) execIn(ctx context.Context, start *corev1.ExecStart, s *execStreams) (*corev1.ExitStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer cancel()
	stream, err := corev1.NewPodServiceClient(c.conn).Exec(ctx)
	if err != nil {
		return nil, apierr.FromStatus(err)
	}
	// EOF from a send means that the call has ended; Recv knows why.
	if err := stream.Send(&corev1.ExecRequest{Message: &corev1.ExecRequest_Start{Start: start}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, apierr.FromStatus(err)
	}
	sending.Go(func() { s.send(ctx, stream.Send) })
	for {
		response, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errors.New("the connection to the container ended before the command did")
		}
		if err != nil {
			return nil, apierr.FromStatus(err)
		}
		switch m := response.GetMessage().(type) {
		case *corev1.ExecResponse_Stdout:
			_, err = s.stdout.Write(m.Stdout)
		case *corev1.ExecResponse_Stderr:
			_, err = s.stderr.Write(m.Stderr)
		case *corev1.ExecResponse_Exit:
			return m.Exit, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// send passes standard input and sizes on until ctx ends. One goroutine sends: streams take one sender at a time.
func (s *execStreams) send(ctx context.Context, send func(*corev1.ExecRequest) error) {
	var input chan []byte
	if s.stdin != nil {
		input = make(chan []byte)
		go s.read(ctx, input)
	}
	for {
		var request *corev1.ExecRequest
		select {
		case <-ctx.Done():
			return
		case <-s.resized:
			size := s.size()
			if size == nil {
				continue
			}
			request = &corev1.ExecRequest{Message: &corev1.ExecRequest_Resize{Resize: size}}
		case data, more := <-input:
			if more {
				request = &corev1.ExecRequest{Message: &corev1.ExecRequest_Stdin{Stdin: data}}
			} else {
				input = nil
				request = &corev1.ExecRequest{Message: &corev1.ExecRequest_CloseStdin{CloseStdin: true}}
			}
		}
		if err := send(request); err != nil {
			return // Recv returns the reason
		}
	}
}

// read hands on standard input piece by piece, and its end by closing.
func (s *execStreams) read(ctx context.Context, input chan<- []byte) {
	defer close(input)
	for {
		piece := make([]byte, 32<<10)
		n, err := s.stdin.Read(piece)
		if n > 0 {
			select {
			case input <- piece[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
