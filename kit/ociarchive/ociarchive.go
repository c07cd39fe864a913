// Package ociarchive writes and reads image archives in the OCI layout: tar files that "trireme image load",
// containerd and docker can import; docker before version 25 by the manifest.json that is beside it. It makes images of a few files (a static program, a test's busybox) without any
// image builder. It never talks to a registry.
package ociarchive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // go-digest takes its hash from the registry of crypto
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"runtime"
	"sort"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// imageName is the annotation from which containerd takes an image's whole name.
const imageName = "io.containerd.image.name"

// dockerManifest lists the images of an archive as docker has always done.
const dockerManifest = "manifest.json"

type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// File is one entry of an image's file system.
type File struct {
	// Data of a regular file.
	Data []byte
	// Mode bits: 0644 for files, 0755 for folders, where zero.
	Mode int64
	// Link makes a symbolic link to it.
	Link string
	// Dir makes a folder.
	Dir bool
	// UID and GID of the owner.
	UID, GID int
}

// Spec describes an image.
type Spec struct {
	// Name is the whole reference: trireme.dev/busybox:latest.
	Name string
	// Files by absolute path. Their folders are made.
	Files map[string]File
	// Entrypoint, Cmd, Env, User, WorkingDir and StopSignal as image configurations have them.
	Entrypoint, Cmd, Env         []string
	User, WorkingDir, StopSignal string
	// Architecture as Go names it; that of this program where empty.
	Architecture string
}

// Write writes an archive that holds one image. The same spec gives the same bytes.
func Write(w io.Writer, spec Spec) error {
	if spec.Name == "" {
		return errors.New("write image archive: no name")
	}
	if spec.Architecture == "" {
		spec.Architecture = runtime.GOARCH
	}
	layer, diffID, err := layer(spec.Files)
	if err != nil {
		return fmt.Errorf("write image archive %s: %w", spec.Name, err)
	}
	a := archive{tar: tar.NewWriter(w)}
	layerDesc := a.blob(ocispec.MediaTypeImageLayerGzip, layer)
	config := a.json(ocispec.MediaTypeImageConfig, ocispec.Image{
		Platform: ocispec.Platform{Architecture: spec.Architecture, OS: "linux"},
		Config: ocispec.ImageConfig{
			User: spec.User, Env: spec.Env, Entrypoint: spec.Entrypoint, Cmd: spec.Cmd,
			WorkingDir: spec.WorkingDir, StopSignal: spec.StopSignal,
		},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{diffID}},
	})
	manifest := a.json(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{layerDesc},
	})
	manifest.Platform = &ocispec.Platform{Architecture: spec.Architecture, OS: "linux"}
	manifest.Annotations = map[string]string{imageName: spec.Name}
	a.marshal(ocispec.ImageIndexFile, ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{manifest},
	})
	a.marshal(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})
	a.marshal(dockerManifest, []dockerImage{{
		Config: blobPath(config.Digest), RepoTags: []string{spec.Name}, Layers: []string{blobPath(layerDesc.Digest)},
	}})
	if err := errors.Join(a.err, a.tar.Close()); err != nil {
		return fmt.Errorf("write image archive %s: %w", spec.Name, err)
	}
	return nil
}

// Names reads the names of the images in an OCI or Docker archive.
func Names(r io.Reader) ([]string, error) {
	var names []string
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read image archive: %w", err)
		}
		switch path.Clean(header.Name) {
		case ocispec.ImageIndexFile:
			var index ocispec.Index
			if err := json.NewDecoder(in).Decode(&index); err != nil {
				return nil, fmt.Errorf("read image archive: %s: %w", header.Name, err)
			}
			for _, m := range index.Manifests {
				if name := m.Annotations[imageName]; name != "" {
					names = append(names, name)
				}
			}
		case dockerManifest:
			var manifests []dockerImage
			if err := json.NewDecoder(in).Decode(&manifests); err != nil {
				return nil, fmt.Errorf("read image archive: %s: %w", header.Name, err)
			}
			for _, m := range manifests {
				names = append(names, m.RepoTags...)
			}
		}
	}
	if len(names) == 0 {
		return nil, errors.New("read image archive: it names no image")
	}
	sort.Strings(names)
	return unique(names), nil
}

func unique(sorted []string) []string {
	kept := sorted[:0]
	for i, s := range sorted {
		if i == 0 || s != sorted[i-1] {
			kept = append(kept, s)
		}
	}
	return kept
}

// layer makes the gzipped tar of the files, and the digest of what is inside the gzip.
func layer(files map[string]File) ([]byte, digest.Digest, error) {
	var zipped bytes.Buffer
	// Archives are made and read on one machine: time matters there, a few megabytes do not.
	zip, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		return nil, "", err
	}
	plain := digest.Canonical.Digester()
	out := tar.NewWriter(io.MultiWriter(zip, plain.Hash()))

	all := map[string]File{}
	for name, f := range files {
		name = strings.TrimPrefix(path.Clean("/"+name), "/")
		all[name] = f
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = File{Dir: true}
			}
		}
	}
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if err := writeFile(out, name, all[name]); err != nil {
			return nil, "", fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := errors.Join(out.Close(), zip.Close()); err != nil {
		return nil, "", err
	}
	return zipped.Bytes(), plain.Digest(), nil
}

func writeFile(out *tar.Writer, name string, f File) error {
	header := &tar.Header{Name: name, Mode: f.Mode, Uid: f.UID, Gid: f.GID, Typeflag: tar.TypeReg, Size: int64(len(f.Data))}
	switch {
	case f.Dir:
		header.Name, header.Typeflag, header.Size = name+"/", tar.TypeDir, 0
		if header.Mode == 0 {
			header.Mode = 0o755
		}
	case f.Link != "":
		header.Typeflag, header.Linkname, header.Size, header.Mode = tar.TypeSymlink, f.Link, 0, 0o777
	case header.Mode == 0:
		header.Mode = 0o644
	}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	_, err := out.Write(f.Data)
	return err
}

// archive writes an OCI layout; its first error stays.
type archive struct {
	tar *tar.Writer
	err error
}

func (a *archive) file(name string, data []byte) {
	if a.err != nil {
		return
	}
	if a.err = a.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}); a.err == nil {
		_, a.err = a.tar.Write(data)
	}
}

func (a *archive) marshal(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil && a.err == nil {
		a.err = err
	}
	a.file(name, data)
}

func (a *archive) blob(mediaType string, data []byte) ocispec.Descriptor {
	desc := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
	a.file(blobPath(desc.Digest), data)
	return desc
}

func blobPath(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, string(d.Algorithm()), d.Encoded())
}

func (a *archive) json(mediaType string, v any) ocispec.Descriptor {
	data, err := json.Marshal(v)
	if err != nil && a.err == nil {
		a.err = err
	}
	return a.blob(mediaType, data)
}
