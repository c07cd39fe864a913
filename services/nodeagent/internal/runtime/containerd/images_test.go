//go:build linux

package containerd

import (
	"sync"
	"testing"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// TestARememberedImageIsCopiedWhileItIsBeingUnpacked: the node's status lists images while a first container is made of
// one. It fails under the race detector where the copy is made outside of the lock.
func TestARememberedImageIsCopiedWhileItIsBeingUnpacked(t *testing.T) {
	target := digest.FromString("image")
	r := &Runtime{images: map[digest.Digest]*imageConfig{target: {name: "first", size: 7}}}
	var unpacking sync.WaitGroup
	unpacking.Go(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.images[target].unpacked = true
	})
	got, ok := r.known(images.Image{Name: "second", Target: ocispec.Descriptor{Digest: target}})
	unpacking.Wait()
	if !ok || got.name != "second" || got.size != 7 {
		t.Errorf("got %+v, %v, want a copy under the name asked for", got, ok)
	}
	if r.images[target].name != "first" {
		t.Errorf("what is remembered is now called %s", r.images[target].name)
	}
}
