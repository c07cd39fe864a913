package simulated

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/distribution/reference"

	"trireme.dev/kit/ociarchive"
	"trireme.dev/services/nodeagent/internal/runtime"
)

type images struct{ host *Host }

// Get finds every image that can be had.
func (i images) Get(_ context.Context, ref string) (*runtime.Image, error) {
	image, err := simulatedImage(ref)
	if err != nil {
		return nil, err
	}
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	if unavailable(ref) && !i.host.imported[image.Names[0]] {
		return nil, fmt.Errorf("image %s: %w", ref, runtime.ErrNotFound)
	}
	return image, nil
}

// Pull fails for images that can't be had.
func (i images) Pull(ctx context.Context, ref string) (*runtime.Image, error) {
	image, err := i.Get(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("pull %s: the simulated registry has no such image: %w", ref, err)
	}
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	i.host.imported[image.Names[0]] = true
	return image, nil
}

// Import takes the names from an archive and forgets the rest.
func (i images) Import(_ context.Context, r io.Reader) ([]string, error) {
	names, err := ociarchive.Names(r)
	if err != nil {
		return nil, fmt.Errorf("import image: %w", err)
	}
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	for n, name := range names {
		named, err := reference.ParseDockerRef(name)
		if err != nil {
			return nil, fmt.Errorf("import image %s: %w", name, err)
		}
		names[n] = named.String()
		i.host.imported[names[n]] = true
	}
	return names, nil
}

// List lists the images that were pulled or imported.
func (i images) List(context.Context) ([]*runtime.Image, error) {
	i.host.mu.Lock()
	defer i.host.mu.Unlock()
	list := []*runtime.Image{}
	for name := range i.host.imported {
		image, err := simulatedImage(name)
		if err != nil {
			return nil, err
		}
		list = append(list, image)
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Names[0] < list[b].Names[0] })
	return list, nil
}

func unavailable(ref string) bool {
	return strings.HasPrefix(ref, "absent/") || strings.HasSuffix(ref, ":missing")
}

func simulatedImage(ref string) (*runtime.Image, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return nil, fmt.Errorf("image %q: %w", ref, err)
	}
	name := named.String()
	return &runtime.Image{
		ID: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(name))), Names: []string{name}, SizeBytes: 1 << 20,
	}, nil
}
