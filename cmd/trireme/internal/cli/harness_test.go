package cli_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/kind"
	"trireme.dev/client/manifest"
	"trireme.dev/cmd/trireme/internal/cli"
	"trireme.dev/cmd/trireme/internal/contexts"
	"trireme.dev/kit/daemon"
	"trireme.dev/kit/rpc"
	"trireme.dev/services/apiserver/apitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program runs the commands against a gateway.
type program struct {
	config string
	dial   func(contexts.Context) (*grpc.ClientConn, error)
}

func newProgram(t *testing.T, dial func(contexts.Context) (*grpc.ClientConn, error)) *program {
	t.Helper()
	p := &program{config: filepath.Join(t.TempDir(), "config.yaml"), dial: dial}
	config := &contexts.Config{CurrentContext: "test", Contexts: map[string]contexts.Context{
		"test": {Server: "unix:///run/apiserver.sock"}, "other": {Server: "127.0.0.1:1", Namespace: "team-a"},
	}}
	if err := config.Save(p.config); err != nil {
		t.Fatal(err)
	}
	t.Setenv(contexts.EnvVar, p.config)
	return p
}

// run runs one command as main does.
func (p *program) run(ctx context.Context, stdin string, args ...string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	code = p.execute(ctx, strings.NewReader(stdin), &out, &errOut, args...)
	return out.String(), errOut.String(), code
}

// stream runs one command whose output is read while it runs.
func (p *program) stream(ctx context.Context, out io.Writer, args ...string) int {
	return p.execute(ctx, strings.NewReader(""), out, io.Discard, args...)
}

func (p *program) execute(ctx context.Context, in io.Reader, out, errOut io.Writer, args ...string) int {
	root := &cobra.Command{Use: "trireme", SilenceErrors: true, SilenceUsage: true}
	cli.AddTo(root, cli.Deps{In: in, Out: out, Err: errOut, Dial: p.dial, Version: "v1"})
	root.SetOut(out)
	root.SetErr(errOut)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	var exit *daemon.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		exit = &daemon.ExitError{Code: 1, Err: err}
	}
	if exit.Err != nil {
		fmt.Fprintf(errOut, "error: %v\n", err)
	}
	return exit.Code
}

// TestCommands runs the scripts in testdata. Each has a gateway and a clock of its own.
//
//	trireme ARGS...      what the command prints: standard output, standard error after "2> ", the exit code
//	file name=F          puts the input into a file of the working folder
//	stdin                is what the next command reads
//	status               stores the status of the objects in the input
//	pass duration=D      lets time pass
//	as user=U            makes U, who is in no group, call from then on; admin is the administrator
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			s := apitest.New(t)
			dir, stdin, user := t.TempDir(), "", "admin"
			p := newProgram(t, func(contexts.Context) (*grpc.ClientConn, error) {
				if user == "admin" {
					return s.Dial()
				}
				return s.DialAs(rpc.Caller{User: user})
			})
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				var name string
				switch d.Cmd {
				case "file":
					d.ScanArgs(t, "name", &name)
					file := filepath.Join(dir, filepath.FromSlash(name))
					if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, []byte(d.Input), 0o600); err != nil {
						t.Fatal(err)
					}
				case "stdin":
					stdin = d.Input
				case "pass":
					d.ScanArgs(t, "duration", &name)
					passed, err := time.ParseDuration(name)
					if err != nil {
						t.Fatal(err)
					}
					<-time.After(passed) // by the bubble's clock
				case "as":
					d.ScanArgs(t, "user", &user)
				case "status":
					setStatus(t, s.Conn(), d.Input)
				case "trireme":
					args := arguments(d.Input)
					for i, a := range args {
						args[i] = strings.ReplaceAll(a, "$DIR", dir)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					out, errOut, code := p.run(ctx, stdin, args...)
					stdin = ""
					return strings.NewReplacer(dir, "$DIR", p.config, "$CONFIG").Replace(transcript(out, errOut, code))
				default:
					d.Fatalf(t, "unknown directive %s", d.Cmd)
				}
				return ""
			})
		})
	})
}

// volatile fields differ from run to run.
var volatile = regexp.MustCompile(`(uid|resourceVersion): \S+`)

// So do tokens, and in lists their IDs.
var (
	tokens   = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}\.[a-z2-7]{32}`)
	tokenIDs = regexp.MustCompile(`(?m)^[a-z0-9]{6}( +(in [0-9hms]+|never|expired) )`)
)

func transcript(out, errOut string, code int) string {
	var b strings.Builder
	b.WriteString(out)
	if out != "" && !strings.HasSuffix(out, "\n") {
		b.WriteString("%\n") // no line break at the end
	}
	for line := range strings.Lines(errOut) {
		b.WriteString("2> " + line)
	}
	if code != 0 {
		fmt.Fprintf(&b, "exit %d\n", code)
	}
	// Spaces at the end of a line and empty lines are made visible.
	text := volatile.ReplaceAllString(b.String(), "$1: ...")
	text = tokens.ReplaceAllString(text, "TOKEN")
	text = tokenIDs.ReplaceAllString(text, "ID    $1")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if trimmed := strings.TrimRight(line, " "); trimmed != line {
			lines[i] = trimmed + "·"
		} else if line == "" && i < len(lines)-1 {
			lines[i] = "·"
		}
	}
	return strings.Join(lines, "\n")
}

// arguments splits a line as a shell does with single quotes.
func arguments(line string) []string {
	var args []string
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range strings.TrimSpace(line) {
		switch {
		case r == '\'':
			quoted, begun = !quoted, true
		case (r == ' ' || r == '\n') && !quoted:
			if begun {
				args = append(args, word.String())
			}
			word.Reset()
			begun = false
		default:
			begun = true
			word.WriteRune(r)
		}
	}
	if begun {
		args = append(args, word.String())
	}
	return args
}

// setStatus stores the statuses in a manifest, on the objects as they are, and binds pods that name a node.
func setStatus(t *testing.T, conn *grpc.ClientConn, text string) {
	t.Helper()
	docs, err := manifest.Decode(kind.Builtin(), "status", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		meta := d.Object.GetMetadata()
		resource := client.Dynamic(conn, d.Kind)
		live, err := resource.Get(t.Context(), meta.GetNamespace(), meta.GetName())
		if err != nil {
			t.Fatal(err)
		}
		m := live.ProtoReflect()
		field := m.Descriptor().Fields().ByName("status")
		m.Set(field, d.Object.ProtoReflect().Get(field))
		if _, err := resource.UpdateStatus(t.Context(), live); err != nil {
			t.Fatal(err)
		}
		if proto.Size(d.Object) == 0 {
			t.Fatal("an empty status")
		}
	}
}
