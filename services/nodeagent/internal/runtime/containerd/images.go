//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// imageConfig is what a container needs to know of its image. It is read once per image.
type imageConfig struct {
	name     string
	target   ocispec.Descriptor
	id       string // the configuration's digest
	chainID  string // the snapshot of its topmost layer
	config   ocispec.ImageConfig
	size     int64
	unpacked bool
}

type imageStore struct{ r *Runtime }

// Images is containerd's image store.
func (r *Runtime) Images() runtime.Images { return imageStore{r} }

func normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("image %q: %w", ref, err)
	}
	return named.String(), nil
}

// Get finds an image.
func (s imageStore) Get(ctx context.Context, ref string) (*runtime.Image, error) {
	image, err := s.r.inspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	return &runtime.Image{ID: image.id, Names: []string{image.name}, SizeBytes: image.size}, nil
}

// inspect reads an image's configuration, or remembers it.
func (r *Runtime) inspect(ctx context.Context, ref string) (*imageConfig, error) {
	name, err := normalize(ref)
	if err != nil {
		return nil, err
	}
	stored, err := r.client.ImageService().Get(ctx, name)
	if isNotFound(err) {
		return nil, fmt.Errorf("image %s: %w", name, runtime.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", name, err)
	}
	return r.read(ctx, stored)
}

func (r *Runtime) read(ctx context.Context, stored images.Image) (*imageConfig, error) {
	if known, ok := r.known(stored); ok {
		return known, nil
	}
	image := client.NewImage(r.client, stored)
	desc, err := image.Config(ctx)
	if err != nil {
		return nil, fmt.Errorf("image %s: configuration: %w", stored.Name, err)
	}
	spec, err := image.Spec(ctx)
	if err != nil {
		return nil, fmt.Errorf("image %s: configuration: %w", stored.Name, err)
	}
	size, err := image.Size(ctx)
	if err != nil {
		return nil, fmt.Errorf("image %s: size: %w", stored.Name, err)
	}
	read := &imageConfig{
		name: stored.Name, target: stored.Target, id: desc.Digest.String(),
		chainID: identity.ChainID(spec.RootFS.DiffIDs).String(), config: spec.Config, size: size,
	}
	named := *read
	r.mu.Lock()
	r.images[stored.Target.Digest] = read
	r.mu.Unlock()
	return &named, nil
}

// known returns a copy of what was read of an image before, under the name asked for. What is remembered changes when
// the image is unpacked, so it is copied under the lock.
func (r *Runtime) known(stored images.Image) (*imageConfig, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	read, ok := r.images[stored.Target.Digest]
	if !ok {
		return nil, false
	}
	named := *read
	named.name = stored.Name
	return &named, true
}

// resolve finds an image and sees to it that its layers are unpacked.
func (r *Runtime) resolve(ctx context.Context, ref string) (*imageConfig, error) {
	image, err := r.inspect(ctx, ref)
	if err != nil || image.unpacked {
		return image, err
	}
	if err := r.unpack(ctx, image); err != nil {
		return nil, err
	}
	return image, nil
}

func (r *Runtime) unpack(ctx context.Context, image *imageConfig) error {
	if _, err := r.snapshotter.Stat(ctx, image.chainID); err != nil {
		if !isNotFound(err) {
			return fmt.Errorf("image %s: %w", image.name, err)
		}
		stored := client.NewImage(r.client, images.Image{Name: image.name, Target: image.target})
		if err := stored.Unpack(ctx, r.cfg.Snapshotter); err != nil {
			return fmt.Errorf("unpack image %s: %w", image.name, err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	image.unpacked = true
	if known, ok := r.images[image.target.Digest]; ok {
		known.unpacked = true
	}
	return nil
}

// forgetImage makes the next use look again.
func (r *Runtime) forgetImage(image *imageConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.images, image.target.Digest)
}

// Pull fetches an image and unpacks it. Registries on this machine are spoken to without TLS, as everywhere.
func (s imageStore) Pull(ctx context.Context, ref string) (*runtime.Image, error) {
	name, err := normalize(ref)
	if err != nil {
		return nil, err
	}
	resolver := docker.NewResolver(docker.ResolverOptions{
		Hosts: docker.ConfigureDefaultRegistries(docker.WithPlainHTTP(docker.MatchLocalhost)),
	})
	_, err = s.r.client.Pull(ctx, name, client.WithResolver(resolver),
		client.WithPullUnpack, client.WithPullSnapshotter(s.r.cfg.Snapshotter))
	if err != nil {
		return nil, fmt.Errorf("pull %s: %w", name, err)
	}
	return s.Get(ctx, name)
}

// Import reads an archive and unpacks its images.
func (s imageStore) Import(ctx context.Context, in io.Reader) ([]string, error) {
	imported, err := s.r.client.Import(ctx, in)
	if err != nil {
		return nil, fmt.Errorf("import image: %w", err)
	}
	var names []string
	for _, stored := range imported {
		name, err := s.adopt(ctx, stored)
		if err != nil {
			return nil, fmt.Errorf("import image: %w", err)
		}
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, errors.New("import image: the archive names no image")
	}
	sort.Strings(names)
	return names, nil
}

// adopt gives an imported image its whole name, and unpacks it.
func (s imageStore) adopt(ctx context.Context, stored images.Image) (string, error) {
	name, err := normalize(stored.Name)
	if err != nil {
		return "", err
	}
	if name != stored.Name {
		store := s.r.client.ImageService()
		whole := images.Image{Name: name, Target: stored.Target, Labels: stored.Labels}
		if _, err := store.Create(ctx, whole); err != nil {
			if _, err := store.Update(ctx, whole); err != nil {
				return "", err
			}
		}
		if err := store.Delete(ctx, stored.Name); err != nil && !isNotFound(err) {
			return "", err
		}
	}
	_, err = s.r.resolve(ctx, name)
	return name, err
}

// List lists images, each one once with all its names.
func (s imageStore) List(ctx context.Context) ([]*runtime.Image, error) {
	stored, err := s.r.client.ImageService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	byID := map[string]*runtime.Image{}
	for _, one := range stored {
		image, err := s.r.read(ctx, one)
		if err != nil {
			// Half of an image, as an interrupted pull leaves it, is not present.
			s.r.logger.Debug("image is not listed", "image", one.Name, "error", err)
			continue
		}
		entry, ok := byID[image.id]
		if !ok {
			entry = &runtime.Image{ID: image.id, SizeBytes: image.size}
			byID[image.id] = entry
		}
		entry.Names = append(entry.Names, one.Name)
	}
	list := make([]*runtime.Image, 0, len(byID))
	for _, image := range byID {
		sort.Strings(image.Names)
		list = append(list, image)
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Names[0] < list[j].Names[0] })
	return list, nil
}
