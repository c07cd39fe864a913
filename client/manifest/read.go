package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trireme.dev/client/kind"
)

// stdinName is what errors call standard input.
const stdinName = "standard input"

// Read reads the manifests that a user names: files, folders and "-" for stdin, in the order given. Of a folder it
// takes what Files does, without the folders inside.
//
// As with Decode all that is wrong is reported together, and then no document is returned.
func Read(registry *kind.Registry, paths []string, stdin io.Reader) ([]Document, error) {
	files, err := Files(paths, false)
	if err != nil {
		return nil, err
	}
	var documents []Document
	var problems Errors
	for _, file := range files {
		found, err := readFile(registry, file, stdin)
		var wrong Errors
		if err != nil && !errors.As(err, &wrong) {
			return nil, err
		}
		documents, problems = append(documents, found...), append(problems, wrong...)
	}
	if err := problems.err(); err != nil {
		return nil, err
	}
	return documents, nil
}

func readFile(registry *kind.Registry, file string, stdin io.Reader) ([]Document, error) {
	if file == "-" {
		return Decode(registry, stdinName, stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	defer func() { _ = f.Close() }()
	return Decode(registry, file, f)
}

// Files lists the files that paths stand for. A file and "-" stand for themselves. A folder stands for the .yaml, .yml
// and .json files in it, in the order of their names, and where recursive is set for those of the folders inside too;
// a folder without any is an error, because silence would look like success. URLs are refused.
func Files(paths []string, recursive bool) ([]string, error) {
	var files []string
	stdins := 0
	for _, path := range paths {
		if path == "-" {
			if stdins++; stdins > 1 {
				return nil, fmt.Errorf("standard input (-) can be read once only")
			}
			files = append(files, path)
			continue
		}
		if scheme, _, isURL := strings.Cut(path, "://"); isURL {
			return nil, fmt.Errorf("%s: manifests are read from files, not from %s; fetch it first, as in: curl -sSfL %s | trireme apply -f -",
				path, scheme, path)
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read manifest: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		inside, err := filesOf(path, recursive)
		if err != nil {
			return nil, err
		}
		files = append(files, inside...)
	}
	return files, nil
}

// filesOf lists the manifests of a folder.
func filesOf(folder string, recursive bool) ([]string, error) {
	var files []string
	folders := false
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir():
			if path != folder && !recursive {
				folders = true
				return fs.SkipDir
			}
		case slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read folder %s: %w", folder, err)
	}
	if len(files) == 0 {
		hint := ""
		if folders {
			hint = "; the folders inside are read with --recursive"
		}
		return nil, fmt.Errorf("%s: no .yaml, .yml or .json file in this folder%s", folder, hint)
	}
	return files, nil
}
