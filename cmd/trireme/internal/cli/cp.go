package cli

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
)

func (c *cli) copyCommand() *cobra.Command {
	var container string
	cmd := &cobra.Command{
		Use:   "cp (POD:PATH LOCAL | LOCAL POD:PATH)",
		Short: "Copy files and folders from or to a container, which must have tar",
		Example: `  trireme cp web-1:/var/log/app.log .
  trireme cp ./data team-a/train-0:/data -c worker`,
		Args: exactly(2, "a source and a destination"),
		RunE: c.online(func(ctx context.Context, args []string) error {
			from, fromPod := podPath(args[0])
			to, toPod := podPath(args[1])
			switch {
			case fromPod == toPod:
				return usage("one of source and destination must be in a pod, written POD:PATH")
			case fromPod && from.path == "" || toPod && to.path == "":
				return usage("a path must follow the colon: POD:PATH")
			case fromPod:
				return c.download(ctx, from, container, args[1])
			}
			return c.upload(ctx, args[0], to, container)
		}),
	}
	cmd.Flags().StringVarP(&container, "container", "c", "", "`name` of the container (default: the first)")
	return cmd
}

// remotePath is a path in a pod.
type remotePath struct{ namespace, pod, path string }

// podPath reads [NAMESPACE/]POD:PATH or pod/POD:PATH. What has a slash before the pod's namespace, or no colon, is a local path.
func podPath(arg string) (remotePath, bool) {
	pod, p, is := strings.Cut(arg, ":")
	if !is || pod == "" || strings.HasPrefix(pod, ".") || strings.HasPrefix(pod, "/") || strings.Count(pod, "/") > 1 {
		return remotePath{}, false
	}
	namespace := ""
	if before, after, has := strings.Cut(pod, "/"); has {
		// Names as `get -o name` prints them work too; a namespace called pod must be given by -n.
		if pod = after; before != "pod" && before != "pods" && before != "po" {
			namespace = before
		}
	}
	return remotePath{namespace, pod, p}, true
}

// tarIn runs a command in the pod's container; what it says on standard error explains a failure.
func (c *cli) tarIn(ctx context.Context, r remotePath, container string, stdin io.Reader, stdout io.Writer, command ...string) (int, error) {
	var said bytes.Buffer
	exit, err := c.execIn(ctx, &corev1.ExecStart{
		Namespace: r.namespace, Name: r.pod, Container: container, Command: command,
		Stdin: stdin != nil, Stdout: true, Stderr: true,
	}, &execStreams{stdin: stdin, stdout: stdout, stderr: &said})
	if err != nil {
		return 0, err
	}
	if exit.GetCode() == 0 {
		return 0, nil
	}
	text := strings.TrimSpace(said.String() + " " + exit.GetMessage())
	if exit.GetCode() == 126 || exit.GetCode() == 127 {
		text = strings.TrimSpace(fmt.Sprintf("the container needs %s for this: %s", command[0], text))
	}
	return int(exit.GetCode()), fmt.Errorf("%s in pod %s: %s", command[0], r.pod, text)
}

// place finds the pod and container of a remote path.
func (c *cli) place(ctx context.Context, r *remotePath, container *string) error {
	if r.namespace != "" {
		c.namespace = r.namespace
	}
	pod, err := c.podOf(ctx, r.pod)
	if err != nil {
		return err
	}
	r.namespace = pod.GetMetadata().GetNamespace()
	if *container == "" {
		*container = c.containerOf(pod)
	}
	return nil
}

func (c *cli) upload(ctx context.Context, local string, to remotePath, container string) error {
	if _, err := os.Stat(local); err != nil {
		return err
	}
	if err := c.place(ctx, &to, &container); err != nil {
		return err
	}
	absolute, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	target := path.Clean(to.path)
	// As cp does: into a folder that is there, or else under the name given.
	code, err := c.tarIn(ctx, to, container, nil, io.Discard, "test", "-d", target)
	switch {
	case err == nil:
		target = path.Join(target, filepath.Base(absolute))
	case code != 1:
		return err
	case strings.HasSuffix(to.path, "/"):
		return fmt.Errorf("%s is no folder in pod %s", to.path, to.pod)
	}
	reader, writer := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := pack(writer, absolute, path.Base(target))
		writer.CloseWithError(err)
		packed <- err
	}()
	_, err = c.tarIn(ctx, to, container, reader, io.Discard, "tar", "-xmf", "-", "-C", path.Dir(target))
	_ = reader.Close() // ends pack where the container stopped reading
	if failed := <-packed; failed != nil && !errors.Is(failed, io.ErrClosedPipe) {
		return failed
	}
	return err
}

// pack writes a file or folder as a tar under a new name.
func pack(w io.Writer, root, name string) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		link := ""
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			if link, err = os.Readlink(file); err != nil {
				return err
			}
		case !info.IsDir() && !info.Mode().IsRegular():
			return nil // sockets and devices have no content to copy
		}
		header, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		header.Name = path.Join(name, filepath.ToSlash(relative))
		// Users and groups of this machine mean nothing in the container.
		header.Uid, header.Gid, header.Uname, header.Gname = 0, 0, "", ""
		if err := archive.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(archive, f)
		return errors.Join(err, f.Close())
	})
	return errors.Join(err, archive.Close())
}

func (c *cli) download(ctx context.Context, from remotePath, container, local string) error {
	if err := c.place(ctx, &from, &container); err != nil {
		return err
	}
	source := path.Clean(from.path)
	info, err := os.Stat(local)
	switch {
	case err == nil && info.IsDir():
		if base := path.Base(source); base != "." && base != "/" {
			local = filepath.Join(local, base)
		}
	case err != nil && strings.HasSuffix(local, string(filepath.Separator)):
		return fmt.Errorf("%s is no folder", local)
	}
	reader, writer := io.Pipe()
	unpacked := make(chan error, 1)
	go func() {
		err := c.unpack(reader, path.Base(source), local)
		reader.CloseWithError(err)
		unpacked <- err
	}()
	_, err = c.tarIn(ctx, from, container, nil, writer, "tar", "-cf", "-", "-C", path.Dir(source), path.Base(source))
	writer.CloseWithError(err)
	// What could not be written here is the better explanation, unless it only repeats what went wrong there.
	if failed := <-unpacked; failed != nil && err == nil {
		return failed
	}
	return err
}

// unpack writes what is in a tar to a local path. Nothing is written outside of it, whatever the names in the tar say:
// the container is not trusted. Links are left out for the same reason.
func (c *cli) unpack(r io.Reader, name, local string) error {
	absolute, err := filepath.Abs(local)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(absolute))
	if err != nil {
		return err
	}
	defer root.Close()
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// tar pads its end; the writer must not be left with it.
			_, err = io.Copy(io.Discard, r)
			return err
		}
		if err != nil {
			return err
		}
		inner, inside := strings.CutPrefix(path.Clean(header.Name), name)
		if name == "/" || name == "." {
			inner, inside = "/"+path.Clean(header.Name), true
		}
		if !inside || inner != "" && inner[0] != '/' {
			return fmt.Errorf("the container sent %q, which was not asked for", header.Name)
		}
		target := filepath.Join(filepath.Base(absolute), filepath.FromSlash(path.Clean("/"+inner)))
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(target, 0o755)
		case tar.TypeReg:
			err = writeFile(root, target, archive, header.FileInfo().Mode().Perm())
		default:
			c.warn(header.Name, "left out: neither a file nor a folder")
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(root *os.Root, name string, from io.Reader, mode fs.FileMode) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
