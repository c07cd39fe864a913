package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"trireme.dev/services/apiserver/internal/storage"
)

// memberTimeout bounds the question to one member: who asks for the state of a cluster does so because something may be
// down.
const memberTimeout = 2 * time.Second

// Snapshot implements storage.Store.
func (s *Store) Snapshot(ctx context.Context) (int64, io.ReadCloser, error) {
	// Linearizable, so whatever member the snapshot comes from has it, or waits until it has.
	revision, err := s.Revision(ctx)
	if err != nil {
		return 0, nil, err
	}
	r, err := s.client.Snapshot(ctx)
	if err != nil {
		return 0, nil, translate("snapshot", "", err)
	}
	return revision, r, nil
}

// Members implements storage.Store.
func (s *Store) Members(ctx context.Context) ([]storage.Member, error) {
	listing, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	// Serializable: the members can be listed without a majority of them.
	list, err := s.client.MemberList(listing, clientv3.WithSerializable())
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return nil, fmt.Errorf("list members: %w: no answer within %s", storage.ErrUnavailable, memberTimeout)
	}
	if err != nil {
		return nil, translate("list members", "", err)
	}
	members := make([]storage.Member, len(list.Members))
	var wg sync.WaitGroup
	for i, m := range list.Members {
		wg.Go(func() { members[i] = s.member(ctx, m) })
	}
	wg.Wait()
	slices.SortFunc(members, func(a, b storage.Member) int { return cmp.Compare(a.Name, b.Name) })
	return members, nil
}

// member asks one member, at each of its addresses until one answers. A member without any is the one in this process,
// or one that has never started.
func (s *Store) member(ctx context.Context, m *etcdserverpb.Member) storage.Member {
	out := storage.Member{Name: m.GetName()}
	endpoints := m.GetClientURLs()
	if len(endpoints) == 0 {
		if m.GetName() == "" {
			out.Err = errors.New("it has not started yet")
			return out
		}
		endpoints = []string{""}
	}
	for _, endpoint := range endpoints {
		out.Endpoint = endpoint
		asking, cancel := context.WithTimeout(ctx, memberTimeout)
		status, err := s.client.Status(asking, endpoint)
		cancel()
		if err != nil {
			out.Err = err
			if errors.Is(err, context.DeadlineExceeded) {
				out.Err = fmt.Errorf("no answer within %s", memberTimeout)
			}
			continue
		}
		out.Err = nil
		out.Version, out.Learner = status.Version, status.IsLearner
		out.Leader = status.Leader == m.GetID() && m.GetID() != 0
		out.Size, out.InUse, out.Quota = status.DbSize, status.DbSizeInUse, status.DbSizeQuota
		out.Revision = status.Header.GetRevision()
		out.Alarms = alarms(status.Errors)
		break
	}
	return out
}

// alarms picks what is wrong from a status: "memberID:1 alarm:NOSPACE", "etcdserver: no leader".
func alarms(errs []string) []string {
	var out []string
	for _, e := range errs {
		if _, alarm, ok := strings.Cut(e, "alarm:"); ok {
			e = strings.TrimSpace(alarm)
		}
		if !slices.Contains(out, e) {
			out = append(out, e)
		}
	}
	return out
}

// Defragment implements storage.Store.
func (s *Store) Defragment(ctx context.Context) error {
	revision, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	// Physical: what is to be freed must be gone when the file is written anew.
	if _, err := s.client.Compact(ctx, revision, clientv3.WithCompactPhysical()); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return translate("compact", fmt.Sprint(revision), err)
	}
	members, err := s.Members(ctx)
	if err != nil {
		return err
	}
	room := true
	for _, m := range members {
		if m.Err != nil {
			return fmt.Errorf("defragment %s: %w: %w", m.Name, storage.ErrUnavailable, m.Err)
		}
		// One after the other: a member that is at it answers nobody.
		if err := s.defragment(ctx, m.Endpoint); err != nil {
			return translate("defragment", m.Name, err)
		}
		after, err := s.client.Status(ctx, m.Endpoint)
		if err != nil {
			return translate("status", m.Name, err)
		}
		room = room && (after.DbSizeQuota == 0 || after.DbSize < after.DbSizeQuota)
	}
	if !room {
		return fmt.Errorf("defragment: %w, even without history", &storage.NoSpaceError{Quota: s.quota(ctx)})
	}
	return s.disarm(ctx)
}

// defragment one member. etcd's in-process client cannot ask for it.
func (s *Store) defragment(ctx context.Context, endpoint string) error {
	if s.DefragmentLocal != nil {
		return s.DefragmentLocal()
	}
	_, err := s.client.Defragment(ctx, endpoint)
	return err
}

// disarm takes back the alarm about space, and no other.
func (s *Store) disarm(ctx context.Context) error {
	raised, err := s.client.AlarmList(ctx)
	if err != nil {
		return translate("list alarms", "", err)
	}
	for _, a := range raised.Alarms {
		if a.GetAlarm() != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := s.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return translate("disarm", "", err)
		}
	}
	return nil
}

// quota of whichever member answers; 0 where none tells.
func (s *Store) quota(ctx context.Context) int64 {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	for _, endpoint := range append(s.client.Endpoints(), "") {
		if status, err := s.client.Status(ctx, endpoint); err == nil {
			return status.DbSizeQuota
		}
	}
	return 0
}
