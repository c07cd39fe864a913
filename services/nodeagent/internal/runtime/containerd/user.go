//go:build linux

package containerd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/continuity/fs"
	mobyuser "github.com/moby/sys/user"

	"trireme.dev/services/nodeagent/internal/runtime"
)

// user is who a container's processes are.
type user struct {
	uid, gid uint32
	groups   []uint32
}

// userKey: what an image calls someone never changes.
type userKey struct{ chainID, name string }

// processUser decides who the container's processes are: the pod's choice before the image's, names looked up in the
// image's own /etc/passwd and /etc/group.
func (r *Runtime) processUser(ctx context.Context, security runtime.Security, image *imageConfig) (user, error) {
	name := image.config.User
	if security.RunAsUser != nil {
		name = strconv.FormatInt(*security.RunAsUser, 10)
	}
	u, err := r.lookupUser(ctx, image.chainID, name)
	if err != nil {
		return user{}, fmt.Errorf("user %q: %w", name, err)
	}
	if security.RunAsGroup != nil {
		u.gid = uint32(*security.RunAsGroup)
	}
	// The primary group is among the others too: without it a process could gain access by dropping a group.
	groups := append([]uint32{u.gid}, u.groups...)
	for _, g := range security.Groups {
		groups = append(groups, uint32(g))
	}
	u.groups = groups
	return u, nil
}

func (r *Runtime) lookupUser(ctx context.Context, chainID, name string) (user, error) {
	switch name {
	case "", "0", "root", "0:0", "root:root":
		return user{}, nil
	}
	key := userKey{chainID, name}
	r.mu.Lock()
	known, ok := r.users[key]
	r.mu.Unlock()
	if ok {
		return known, nil
	}
	var found *mobyuser.ExecUser
	err := r.withImage(ctx, chainID, func(root string) (err error) {
		files := [2]string{}
		for i, path := range []string{"/etc/passwd", "/etc/group"} {
			// A link in the image must not lead out of it.
			if files[i], err = fs.RootPath(root, path); err != nil {
				return err
			}
		}
		found, err = mobyuser.GetExecUserPath(name, nil, files[0], files[1])
		return err
	})
	if err != nil {
		return user{}, err
	}
	u := user{uid: uint32(found.Uid), gid: uint32(found.Gid)}
	for _, g := range found.Sgids {
		u.groups = append(u.groups, uint32(g))
	}
	r.mu.Lock()
	r.users[key] = u
	r.mu.Unlock()
	return u, nil
}

// withImage shows an image's files, read-only, for as long as look runs.
func (r *Runtime) withImage(ctx context.Context, chainID string, look func(root string) error) (err error) {
	dir, err := os.MkdirTemp(r.cfg.RunDir, "look-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(dir)) }()
	key := "trireme-" + filepath.Base(dir)
	mounts, err := r.snapshotter.View(ctx, key, chainID)
	if err != nil {
		return fmt.Errorf("view image: %w", err)
	}
	defer func() { err = errors.Join(err, r.snapshotter.Remove(context.WithoutCancel(ctx), key)) }()
	if err := mount.All(mounts, dir); err != nil {
		return fmt.Errorf("mount image: %w", err)
	}
	defer func() { err = errors.Join(err, mount.UnmountAll(dir, 0)) }()
	return look(dir)
}

// mergeEnv puts later settings in the place of earlier ones of the same name.
func mergeEnv(env []string, more ...[]string) []string {
	merged := append([]string{}, env...)
	at := map[string]int{}
	for i, e := range merged {
		name, _, _ := strings.Cut(e, "=")
		at[name] = i
	}
	for _, list := range more {
		for _, e := range list {
			name, _, _ := strings.Cut(e, "=")
			if i, ok := at[name]; ok {
				merged[i] = e
				continue
			}
			at[name] = len(merged)
			merged = append(merged, e)
		}
	}
	return merged
}
