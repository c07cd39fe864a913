package server_test

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"google.golang.org/grpc"

	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// call is one operation on the object; answer is what came of it.
type callTmp struct {
	read  bool
	value string // written
}

type outcome struct {
	value   string // read
	unknown bool   // it may have happened, or not, or happen later
}

// register is one object: a write replaces its value, a read returns it.
var register = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		in, _ := input.(callTmp)
		out, _ := output.(outcome)
		if !in.read {
			return true, in.value
		}
		return out.unknown || out.value == state, state
	},
}

// Gets and consistent lists at two gateways, while gateways and etcd are ended and started: every history of the object
// has an order in which each read sees the write before it.
func TestReadsAreLinearizable(t *testing.T) {
	for name, open := range map[string]func(*testing.T) *engine{"memory": inMemory, "etcd": inProcess} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, open(t), nil)
			n := seed(t)
			if _, err := corev1.NewConfigMapServiceClient(c.conns[0]).Create(t.Context(), &corev1.CreateConfigMapRequest{Object: config("r", "")}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var mu sync.Mutex
			var history []porcupine.Operation
			begin := time.Now()
			var wg sync.WaitGroup
			for client := range 5 {
				wg.Go(func() {
					random := rand.New(rand.NewPCG(n, uint64(client)))
					for i := 0; ctx.Err() == nil; i++ {
						in := callTmp{read: random.IntN(3) > 0, value: strconv.Itoa(client) + "-" + strconv.Itoa(i)}
						op := porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(begin))}
						out, err := do(ctx, corev1.NewConfigMapServiceClient(c.conns[random.IntN(2)]), in, random.IntN(2) == 0)
						op.Output, op.Return = out, int64(time.Since(begin))
						if err != nil {
							if in.read {
								continue // it saw nothing
							}
							op.Output, op.Return = outcome{unknown: true}, math.MaxInt64
							// Whoever does not know stays concurrent with everything after; it goes on as somebody else.
						}
						mu.Lock()
						history = append(history, op)
						mu.Unlock()
						time.Sleep(time.Duration(random.IntN(4)) * time.Millisecond)
					}
				})
			}
			random := rand.New(rand.NewPCG(n, 1000))
			for range 6 {
				time.Sleep(time.Duration(100+random.IntN(200)) * time.Millisecond)
				if random.IntN(2) == 0 {
					c.restart(random.IntN(2))
				} else {
					c.killStore(0)
				}
			}
			time.Sleep(300 * time.Millisecond)
			stop()
			wg.Wait()
			// A write that failed for sure is none; those unknown take part until the end.
			for i := range history {
				history[i].ClientId = i
			}
			reads := 0
			for _, op := range history {
				if in, _ := op.Input.(callTmp); in.read {
					reads++
				}
			}
			t.Logf("%d operations, %d of them reads", len(history), reads)
			if reads < 50 {
				t.Error("too few reads to tell anything")
			}
			if result := porcupine.CheckOperationsTimeout(register, history, 30*time.Second); result != porcupine.Ok {
				t.Errorf("the history is %s", result)
			}
		})
	}
}

// do carries out one operation; an error means that it is not known whether it happened.
func do(ctx context.Context, maps corev1.ConfigMapServiceClient, in callTmp, list bool) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	wait := grpc.WaitForReady(true) // for the gateway to be back, rather than many failures that tell nothing
	switch {
	case !in.read:
		obj := config("r", "")
		obj.Data = map[string]string{"v": in.value}
		for {
			_, err := maps.Update(ctx, &corev1.UpdateConfigMapRequest{Object: obj}, wait)
			if err = apierr.FromStatus(err); !apierr.IsConflict(err) {
				return outcome{}, err
			}
		}
	case list:
		stream, err := maps.List(ctx, &metav1.ListRequest{Namespace: "default", FieldSelector: "metadata.name=r"}, wait)
		if err != nil {
			return outcome{}, err
		}
		value := ""
		for {
			chunk, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return outcome{value: value}, nil
			}
			if err != nil {
				return outcome{}, err
			}
			for _, m := range chunk.GetItems() {
				value = m.GetData()["v"]
			}
		}
	default:
		m, err := maps.Get(ctx, &metav1.GetRequest{Namespace: "default", Name: "r"}, wait)
		return outcome{value: m.GetData()["v"]}, err
	}
}

func config(name, color string) *corev1.ConfigMap {
	return &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"color": color}}}
}
