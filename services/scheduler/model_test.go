package scheduler

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/apiserver/apitest"
)

var (
	seedFlag   = flag.Uint64("seed", 0, "`seed` of the random history to play; 0 for a new one")
	roundsFlag = flag.Int("rounds", 0, "how many random histories to play; 0 for as many as a test run has time for")
)

const (
	modelNodes = 6
	modelGang  = 3
	modelSteps = 60
)

var modelRoom = room{milliCPU: 4000, gpus: 4}

// TestNeverOvercommitted plays random histories on the real chain and the real gateway, in virtual time: pods and gangs come
// and go, nodes are removed and come back, bindings are lost, are done without an answer, or arrive after they were given
// up, the watch lags, and schedulers are stopped, or stop without a word and are replaced. At every revision no node has
// more than it can take, no gang is bound in part and no pod changes its node; and in the end all that fits is bound.
func TestNeverOvercommitted(t *testing.T) {
	seed, rounds := *seedFlag, *roundsFlag
	if rounds == 0 {
		rounds = 5
		if seed != 0 || testing.Short() {
			rounds = 1
		}
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	for n := range rounds {
		seed := seed + uint64(n)
		if !t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { playHistory(t, seed) })
		}) {
			t.Logf("go test ./services/scheduler -run TestNeverOvercommitted -seed=%d", seed)
			return
		}
	}
}

// randomHistory is one that is being played.
type randomHistory struct {
	*cluster
	*rand.Rand

	led   *disturbed // connection of the present scheduler
	stop  func()
	old   []func() // what ends schedulers that have stopped without a word
	nodes map[string]bool
	gangs int
	terms int
	next  int
}

func playHistory(t *testing.T, seed uint64) {
	api := apitest.New(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	h := &randomHistory{
		cluster: &cluster{t: t, ctx: ctx, conn: api.Conn(), api: api}, Rand: rand.New(rand.NewPCG(seed, 0)), nodes: map[string]bool{},
	}
	book := keepLedger(t, api.Conn(), modelGang, func(string) room { return modelRoom })
	for i := range modelNodes {
		h.setNode(fmt.Sprintf("n%d", i))
	}
	h.begin()
	for range modelSteps {
		h.step()
		time.Sleep(time.Duration(h.IntN(300)) * time.Millisecond)
	}
	h.led.disturb(nil, nil)
	time.Sleep(7 * time.Minute) // longer than anything waits
	pods, used := book.check(ctx)
	if left := h.lost(pods, used); left != "" {
		t.Errorf("%s fits and is not bound", left)
	}
	h.stop()
	for _, end := range h.old {
		end()
	}
}

func (h *randomHistory) step() {
	switch n := h.IntN(100); {
	case n < 40:
		h.createPods(1+h.IntN(4), "")
	case n < 55:
		name := fmt.Sprintf("g%d", h.gangs)
		h.gangs++
		h.createPods(modelGang, name)
		h.gang(name, modelGang)
	case n < 72:
		h.deletePods()
	case n < 80:
		h.removeOrReturnNode()
	case n < 92:
		h.disturbAnew()
	case n < 96:
		h.stop()
		h.begin()
	default:
		// It says no more, and hears no more: the next one waits for the lease to run out. What it has under way comes
		// out when it wakes up, which it does when the next one is at work.
		last, end := h.led, h.stop
		last.pause()
		h.begin()
		time.Sleep(20 * time.Second)
		h.createPods(2, "")
		last.resume()
		h.old = append(h.old, end)
		end()
	}
}

// begin starts a scheduler on a connection of its own.
func (h *randomHistory) begin() {
	conn := h.conn
	h.led = &disturbed{ClientConnInterface: conn}
	h.terms++
	h.conn = h.led
	h.stop = h.schedule(func(cfg *Config) { cfg.LeaderElect, cfg.Identity = true, fmt.Sprint("s", h.terms) })
	h.conn = conn
}

func (h *randomHistory) disturbAnew() {
	seed := h.Uint64()
	r := rand.New(rand.NewPCG(seed, 1)) // used under the connection's lock
	h.led.disturb(func() disturbance {
		if n := r.IntN(10); n < 4 {
			return disturbance(n)
		}
		return passes
	}, func() time.Duration {
		return time.Duration(seed%7) * 50 * time.Millisecond
	})
}

// createPods makes pods of any size; the members of a gang are equal, so that it does not depend on their order whether all
// find a place.
func (h *randomHistory) createPods(n int, group string) {
	var change func(*corev1.PodSpec)
	var cpu string
	for i := range n {
		if group == "" || i == 0 {
			change, cpu = gpus(h.IntN(3)), fmt.Sprintf("%dm", 250*(1+h.IntN(6)))
			if group != "" {
				change = inGroup(group, 1+h.IntN(2))
			}
		}
		p := pod(fmt.Sprintf("p%03d", h.next), change)
		if group != "" {
			p.Metadata.Name = group + "-" + p.GetMetadata().GetName()
		}
		p.Spec.Containers[0].Resources.Requests["cpu"] = cpu
		h.next++
		h.create(p)
	}
}

// deletePods deletes some pods, bound or not; of a gang all.
func (h *randomHistory) deletePods() {
	list, err := client.For[*corev1.Pod](h.conn).List(h.ctx, client.ListOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	if len(list.Items) == 0 {
		return
	}
	chosen := list.Items[h.IntN(len(list.Items))]
	gang, _, ok := strings.Cut(chosen.GetMetadata().GetName(), "-")
	for _, p := range list.Items {
		name := p.GetMetadata().GetName()
		if p == chosen || ok && strings.HasPrefix(name, gang+"-") {
			h.cluster.delete(name)
		}
	}
}

func (h *randomHistory) setNode(name string) {
	h.nodes[name] = true
	h.node(name, map[string]string{"cpu": fmt.Sprintf("%dm", modelRoom.milliCPU), "nvidia.com/gpu": fmt.Sprint(modelRoom.gpus)})
}

// removeOrReturnNode removes a node, whose pods stay where they are, or brings one back.
func (h *randomHistory) removeOrReturnNode() {
	names := slices.Sorted(maps.Keys(h.nodes))
	name := names[h.IntN(len(names))]
	if !h.nodes[name] {
		h.setNode(name)
		return
	}
	if _, err := client.For[*corev1.Node](h.conn).Delete(h.ctx, "", name, nil); err != nil && !apierr.IsNotFound(err) {
		h.t.Fatal(err)
	}
	h.nodes[name] = false
}

// lost names a pod or gang that waits though there is room for it.
func (h *randomHistory) lost(pods map[string]*corev1.Pod, used map[string]*room) string {
	free := map[string]*room{}
	for name, there := range h.nodes {
		if there {
			left := modelRoom
			if u := used[name]; u != nil {
				left.milliCPU, left.gpus = left.milliCPU-u.milliCPU, left.gpus-u.gpus
			}
			free[name] = &left
		}
	}
	waiting := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if p.GetSpec().GetNodeName() != "" || p.GetSpec().GetSchedulerName() == "none" {
			continue
		}
		key := p.GetMetadata().GetName()
		if gang := p.GetSpec().GetSchedulingGroup().GetPodGroupName(); gang != "" {
			key = gang
		}
		waiting[key] = append(waiting[key], p)
	}
	for key, members := range waiting {
		if members[0].GetSpec().GetSchedulingGroup() != nil && len(members) < modelGang {
			continue
		}
		if fitsAll(members, free) {
			return key
		}
	}
	return ""
}

// fitsAll reports whether the pods fit as the scheduler would place them or in any other way that a look at the first node
// with room finds.
func fitsAll(members []*corev1.Pod, free map[string]*room) bool {
	left := map[string]room{}
	for name, r := range free {
		left[name] = *r
	}
	slices.SortFunc(members, func(a, b *corev1.Pod) int { return cmp.Compare(a.GetMetadata().GetName(), b.GetMetadata().GetName()) })
	for _, p := range members {
		placed := false
		for name, r := range left {
			if r.charge(p, -1); r.milliCPU >= 0 && r.gpus >= 0 {
				left[name], placed = r, true
				break
			}
		}
		if !placed {
			return false
		}
	}
	return true
}
