package ociarchive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func entries(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	in := tar.NewReader(r)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		all[header.Name] = data
	}
}

func TestWrite(t *testing.T) {
	spec := Spec{
		Name: "example.com/hello:1",
		Files: map[string]File{
			"/bin/hello":  {Data: []byte("program"), Mode: 0o755},
			"/bin/hi":     {Link: "hello"},
			"/var/empty/": {Dir: true, Mode: 0o700},
		},
		Entrypoint: []string{"/bin/hello"}, Env: []string{"A=b"}, User: "7", StopSignal: "SIGINT", Architecture: "arm64",
	}
	var one, two bytes.Buffer
	if err := errors.Join(Write(&one, spec), Write(&two, spec)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("the same spec gives other bytes the second time")
	}
	names, err := Names(bytes.NewReader(one.Bytes()))
	if err != nil || len(names) != 1 || names[0] != spec.Name {
		t.Errorf("names %q, %v", names, err)
	}

	files := entries(t, &one)
	blob := func(d ocispec.Descriptor) []byte {
		t.Helper()
		data, ok := files[path.Join("blobs", string(d.Digest.Algorithm()), d.Digest.Encoded())]
		if !ok || digest.FromBytes(data) != d.Digest || int64(len(data)) != d.Size {
			t.Fatalf("blob %s is absent or not what it says", d.Digest)
		}
		return data
	}
	decode := func(data []byte, v any) {
		t.Helper()
		if err := json.Unmarshal(data, v); err != nil {
			t.Fatal(err)
		}
	}
	var index ocispec.Index
	var manifest ocispec.Manifest
	var config ocispec.Image
	decode(files["index.json"], &index)
	decode(blob(index.Manifests[0]), &manifest)
	decode(blob(manifest.Config), &config)
	if config.Architecture != "arm64" || config.OS != "linux" || config.Config.User != "7" || config.Config.StopSignal != "SIGINT" ||
		config.Config.Entrypoint[0] != "/bin/hello" || config.Config.Env[0] != "A=b" {
		t.Errorf("configuration %+v", config)
	}
	zip, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if digest.FromBytes(plain) != config.RootFS.DiffIDs[0] {
		t.Error("the layer is not what the configuration says")
	}
	layer := entries(t, bytes.NewReader(plain))
	if string(layer["bin/hello"]) != "program" {
		t.Errorf("layer has %v", layer)
	}
	for _, name := range []string{"bin/", "bin/hi", "var/", "var/empty/"} {
		if _, ok := layer[name]; !ok {
			t.Errorf("layer lacks %s", name)
		}
	}
}

func TestNames(t *testing.T) {
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	data := []byte(`[{"RepoTags":["b:1","a:1","a:1"]}]`)
	if err := out.WriteHeader(&tar.Header{Name: "manifest.json", Mode: 0o644, Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if names, err := Names(&archive); err != nil || strings.Join(names, " ") != "a:1 b:1" {
		t.Errorf("names of a Docker archive %q, %v", names, err)
	}
	for _, bad := range []string{"", "no archive"} {
		if names, err := Names(strings.NewReader(bad)); err == nil {
			t.Errorf("%q has the names %q", bad, names)
		}
	}
	if err := Write(io.Discard, Spec{}); err == nil {
		t.Error("an image without a name is written")
	}
}
