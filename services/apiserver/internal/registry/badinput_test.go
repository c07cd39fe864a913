package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
)

// bytesCodec sends what it is given.
type bytesCodec struct{}

func (bytesCodec) Name() string                    { return "proto" }
func (bytesCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// raw calls a method with any bytes.
func raw(ctx context.Context, conn *grpc.ClientConn, method string, request []byte) error {
	var answer []byte
	return conn.Invoke(ctx, method, &request, &answer, grpc.ForceCodec(bytesCodec{}))
}

// field is field n of a message, holding bytes.
func field(n protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), value)
}

// badInput is what one bad caller sends, and the one answer it gets.
type badInput struct {
	send   func(ctx context.Context, conn *grpc.ClientConn) error
	code   codes.Code
	reason apierr.Reason
	text   string
}

const (
	podService = "/trireme.core.v1.PodService/"
	mapService = "/trireme.core.v1.ConfigMapService/"
)

func badInputs() map[string]badInput {
	invalid := func(text string, send func(context.Context, *grpc.ClientConn) error) badInput {
		return badInput{send, codes.InvalidArgument, apierr.ReasonInvalid, text}
	}
	bytes := func(method string, request []byte) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error { return raw(ctx, conn, method, request) }
	}
	mapsOf := func(conn *grpc.ClientConn) *client.Resource[*corev1.ConfigMap] {
		return client.For[*corev1.ConfigMap](conn).With(&metav1.WriteOptions{FieldManager: "bad"})
	}
	create := func(edit func(*corev1.ConfigMap)) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			m := configMap("bad", "1")
			edit(m)
			_, err := client.For[*corev1.ConfigMap](conn).Create(ctx, m)
			return err
		}
	}
	patch := func(kind metav1.PatchType, text string) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := mapsOf(conn).Patch(ctx, "default", "victim", kind, []byte(text), "")
			return err
		}
	}
	list := func(options client.ListOptions) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := mapsOf(conn).List(ctx, options)
			return err
		}
	}
	watch := func(req *metav1.WatchRequest) func(context.Context, *grpc.ClientConn) error {
		return func(ctx context.Context, conn *grpc.ClientConn) error {
			w, err := corev1.NewConfigMapServiceClient(conn).Watch(ctx, req)
			for err == nil {
				_, err = w.Recv()
			}
			return err
		}
	}
	nested := func(before string, depth int, after string) string {
		return before + strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth) + after
	}
	const applyHead = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"victim"}`
	text := strings.Repeat("x", 1<<20)
	out := map[string]badInput{
		"garbage as a write":           invalid("request does not hold a Pod", bytes(podService+"Create", []byte("\xff\xfe\xfd garbage"))),
		"garbage as an object":         invalid("request does not hold a Pod", bytes(podService+"Create", field(1, []byte("\x0a\xff\xff\xff\xff\x0f")))),
		"garbage as a read":            invalid("request is not a trireme.meta.v1.GetRequest", bytes(podService+"Get", []byte("\x07\x07\x07"))),
		"nothing as a write":           invalid("object: Required value", bytes(podService+"Create", nil)),
		"nothing as a read":            invalid("name of the Pod is missing", bytes(podService+"Get", nil)),
		"invalid UTF-8 in a name":      invalid("invalid UTF-8", bytes(mapService+"Create", field(1, field(1, field(1, []byte("a\xff")))))),
		"invalid UTF-8 to be read":     invalid("invalid UTF-8", bytes(mapService+"Get", field(2, []byte("a\xff")))),
		"a field of another type":      invalid("name of the ConfigMap is missing", bytes(mapService+"Get", protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7))),
		"an unknown method":            {bytes(podService+"Explode", nil), codes.Unimplemented, apierr.ReasonUnimplemented, "unknown method Explode"},
		"an unknown kind":              {bytes("/trireme.core.v1.GoatService/Get", nil), codes.Unimplemented, apierr.ReasonUnimplemented, "unknown service trireme.core.v1.GoatService"},
		"an object of 1.6 MB":          invalid("may not be more than 1048576 bytes", create(func(m *corev1.ConfigMap) { m.Data["k"] = text[:800<<10] + text[:800<<10] })),
		"labels of 1.6 MB":             invalid("metadata.labels", create(func(m *corev1.ConfigMap) { m.Metadata.Labels = map[string]string{text: text} })),
		"100,000 annotations":          invalid("metadata.annotations: Too long", create(func(m *corev1.ConfigMap) { m.Metadata.Annotations = many(100_000) })),
		"100,000 bad labels":           invalid("more", create(func(m *corev1.ConfigMap) { m.Metadata.Labels = many(100_000) })),
		"100,000 bad keys":             invalid("more", create(func(m *corev1.ConfigMap) { m.Data = many(100_000) })),
		"names with a way out":         invalid("metadata.name", create(func(m *corev1.ConfigMap) { m.Metadata.Name = "../../nodes/n" })),
		"a selector that is open":      invalid("label selector", list(client.ListOptions{Namespace: "default", LabelSelector: "a in (b"})),
		"a selector of one megabyte":   invalid("selector", list(client.ListOptions{Namespace: "default", LabelSelector: "a=" + text})),
		"a selector of 100,000 commas": invalid("selector", list(client.ListOptions{Namespace: "default", LabelSelector: strings.Repeat("a,", 100_000) + "!"})),
		"a field that is none":         invalid("data.k", list(client.ListOptions{Namespace: "default", FieldSelector: "data.k=1"})),
		"a watch by no field":          invalid("field selector", watch(&metav1.WatchRequest{FieldSelector: "a=b=c"})),
		"a watch from a word":          invalid("resourceVersion", watch(&metav1.WatchRequest{ResourceVersion: "yesterday"})),
		"a watch from below":           invalid("resourceVersion", watch(&metav1.WatchRequest{ResourceVersion: "-1"})),
		"a watch from the future":      {watch(&metav1.WatchRequest{ResourceVersion: "999999999"}), codes.DeadlineExceeded, apierr.ReasonTimeout, "Too large resource version: 999999999"},
		"a list from the future":       {list(client.ListOptions{ResourceVersion: "999999999"}), codes.DeadlineExceeded, apierr.ReasonTimeout, "Too large resource version: 999999999"},
		"a number too large":           invalid("resourceVersion", list(client.ListOptions{ResourceVersion: strings.Repeat("9", 40)})),
		"a token that is none":         invalid("continue", list(client.ListOptions{Namespace: "default", Continue: "AAAA"})),
		"a token of 1 MB":              invalid("continue", list(client.ListOptions{Namespace: "default", Continue: text})),
		"a token of another list": invalid("continue", func(ctx context.Context, conn *grpc.ClientConn) error {
			first, err := corev1.NewConfigMapServiceClient(conn).List(ctx, &metav1.ListRequest{Limit: 1})
			if err != nil {
				return err
			}
			token := ""
			for {
				chunk, err := first.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return err
				}
				token = max(token, chunk.GetMetadata().GetContinue())
			}
			_, err = client.For[*corev1.Pod](conn).List(ctx, client.ListOptions{Limit: 1, Continue: token})
			return err
		}),
		"JSON patch of a number":     invalid("expected a string", patch(jsonPatch, `[{"op":"add","path":"/data/k","value":7}]`)),
		"JSON patch, no operation":   invalid("unsupported operation", patch(jsonPatch, `[{"op":"explode","path":"/data"}]`)),
		"JSON patch, index of 10^18": invalid("apply", patch(jsonPatch, `[{"op":"add","path":"/metadata/finalizers","value":[]},{"op":"add","path":"/metadata/finalizers/1000000000000000000","value":"a/b"}]`)),
		"merge patch of a list":      invalid("data", patch(mergePatch, `{"data":["k"]}`)),
		"merge patch of a bad label": invalid("metadata.labels", patch(mergePatch, `{"metadata":{"labels":{"bad label!":"x"}}}`)),
		"merge patch, huge number":   invalid("generation", patch(mergePatch, `{"metadata":{"generation":1e999}}`)),
		"merge patch, huge integer":  invalid("generation", patch(mergePatch, `{"metadata":{"generation":123456789012345678901234567890}}`)),
		"merge patch, not JSON":      invalid("not a JSON object", patch(mergePatch, "\x00\xff")),
		"merge patch, invalid UTF-8": invalid("", patch(mergePatch, "{\"data\":{\"k\":\"\xff\",\"l\":7}}")),
		"merge patch, two objects":   invalid("not a JSON object", patch(mergePatch, `{} {}`)),
		"strategic, nonsense":        invalid("$patch", patch(strategicPatch, `{"$patch":"explode"}`)),
		"deep merge patch":           invalid("nested 10001 deep", patch(mergePatch, nested(`{"data":`, 10_000, `}`))),
		"deep strategic patch":       invalid("nested 10001 deep", patch(strategicPatch, nested(`{"data":`, 10_000, `}`))),
		"deep JSON patch":            invalid("nested", patch(jsonPatch, nested(`[{"op":"add","path":"/data","value":`, 10_000, `}]`))),
		"deep apply":                 invalid("nested 10001 deep", patch(applyPatch, nested(applyHead+`,"data":`, 10_000, `}`))),
		"deep apply of what is free": invalid("nested", patch(applyPatch, nested(strings.TrimSuffix(applyHead, "}")+`,"managedFields":[{"fieldsV1":`, 9_000, `}]}}`))),
		"apply of an unknown field":  invalid("dota: unknown field", patch(applyPatch, applyHead+`,"dota":{}}`)),
		"apply of 4 MB":              invalid("at most 3145728", patch(applyPatch, applyHead+`,"data":{"k":"`+strings.Repeat(text, 4)+`"}}`)),
		"a selector of a deletion": invalid("selector", func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := corev1.NewConfigMapServiceClient(conn).DeleteCollection(ctx, &metav1.DeleteCollectionRequest{Namespace: "default", LabelSelector: "a in"})
			return err
		}),
		"100,000 fields to own": invalid("data: Too many: 100000: owners are kept of at most 10000 items", func(ctx context.Context, conn *grpc.ClientConn) error {
			m := configMap("bad", "1")
			m.Data = many(100_000)
			_, err := mapsOf(conn).Create(ctx, m)
			return err
		}),
		"100,000 fields to apply": invalid("Too many", func(ctx context.Context, conn *grpc.ClientConn) error {
			text, err := json.Marshal(map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "victim"}, "data": many(100_000),
			})
			if err != nil {
				return err
			}
			_, err = mapsOf(conn).Patch(ctx, "default", "victim", applyPatch, text, "")
			return err
		}),
		"a manager without end": invalid("128 bytes", func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := client.For[*corev1.ConfigMap](conn).With(&metav1.WriteOptions{FieldManager: text}).Create(ctx, configMap("bad", "1"))
			return err
		}),
	}
	return out
}

// many is a map whose keys are no good for anything.
func many(n int) map[string]string {
	out := make(map[string]string, n)
	for i := range n {
		out[fmt.Sprintf("bad key %d", i)] = "x"
	}
	return out
}

// One caller sends whatever no honest client sends, while others read and write: each mistake is one clear error, small,
// and of what the others see nothing is missing, doubled or out of order.
func TestBadInputUnderLoad(t *testing.T) {
	e := newEnv(t)
	ctx := t.Context()
	victim := must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("victim", "1")))
	must[*corev1.ConfigMap](t)(e.maps.Create(ctx, configMap("other", "1")))
	load := startLoad(t, e)

	// Clients that never read what they asked for.
	lazy, err := e.Dial()
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		must[corev1.ConfigMapService_WatchClient](t)(corev1.NewConfigMapServiceClient(lazy).Watch(ctx, &metav1.WatchRequest{}))
		must[corev1.ConfigMapService_ListClient](t)(corev1.NewConfigMapServiceClient(lazy).List(ctx, &metav1.ListRequest{}))
	}

	bad, err := e.Dial()
	if err != nil {
		t.Fatal(err)
	}
	inputs := badInputs()
	heap := heapInUse()
	var wg sync.WaitGroup
	for name, c := range inputs {
		check := func() {
			begun := time.Now()
			err := c.send(ctx, bad)
			if d := time.Since(begun); d > time.Second {
				t.Logf("%s: %s", name, d)
			}
			var e *apierr.Error
			st, _ := status.FromError(err)
			if !errors.As(apierr.FromStatus(err), &e) {
				t.Errorf("%s: %v", name, err)
				return
			}
			// A client turns codes into reasons and back.
			if code := e.Reason.Code(); code != c.code || e.Reason != c.reason || !strings.Contains(e.Error(), c.text) {
				t.Errorf("%s: %s %s %.500q, want %s %s %q", name, code, e.Reason, e.Error(), c.code, c.reason, c.text)
			}
			if n := len(st.Message()); n > 64<<10 {
				t.Errorf("%s: the answer has %d bytes", name, n)
			}
		}
		if c.code == codes.DeadlineExceeded {
			wg.Go(check) // it waits
			continue
		}
		check()
	}
	wg.Wait()
	load.stop(t)
	_ = lazy.Close()
	_ = bad.Close()
	if grown := heapInUse() - heap; grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if now := must[*corev1.ConfigMap](t)(e.maps.Get(ctx, "default", "victim")); !proto.Equal(now, victim) {
		t.Errorf("what was refused changed something: %v", now)
	}
	_, err = e.maps.Get(ctx, "default", "bad")
	wantError(t, err, apierr.ReasonNotFound)
}

func heapInUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// load is what others do meanwhile.
type load struct {
	e        *env
	cancel   context.CancelFunc
	writers  sync.WaitGroup
	watchers sync.WaitGroup
	errs     chan error
	views    []*view
}

// view is the state as a watcher has put it together.
type view struct {
	objects  map[string]*corev1.ConfigMap
	revision int64
	begun    bool       // the state of the beginning is complete; it comes in order of names
	reached  chan int64 // the revision that it is to reach
}

const (
	loadWriters  = 4
	loadWatchers = 4
	// loadPace leaves the machine some time for the others' tests.
	loadPace = 5 * time.Millisecond
)

func startLoad(t *testing.T, e *env) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{e: e, cancel: cancel, errs: make(chan error, loadWriters+loadWatchers+1)}
	for w := range loadWatchers {
		v := &view{objects: map[string]*corev1.ConfigMap{}, reached: make(chan int64, 1)}
		l.views = append(l.views, v)
		selector := ""
		if w%2 == 1 {
			selector = "load=yes"
		}
		stream := must[corev1.ConfigMapService_WatchClient](t)(e.cmRaw.Watch(t.Context(), &metav1.WatchRequest{
			Namespace: "default", LabelSelector: selector, AllowBookmarks: true,
		}))
		l.watchers.Go(func() { l.errs <- v.follow(stream) })
	}
	for w := range loadWriters {
		l.writers.Go(func() { l.errs <- write(ctx, e, w) })
	}
	l.writers.Go(func() { l.errs <- l.list(ctx) })
	return l
}

// write makes, changes and removes an object of its own, over and over.
func write(ctx context.Context, e *env, w int) error {
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for round := 0; ctx.Err() == nil; round++ {
		<-pace.C
		m := configMap(fmt.Sprint("load-", w), "0")
		m.Metadata.Labels = map[string]string{"load": "yes"}
		got, err := e.maps.Create(context.WithoutCancel(ctx), m)
		for i := 1; i < 5 && err == nil; i++ {
			got.Data["k"] = strconv.Itoa(i)
			got, err = e.maps.Update(context.WithoutCancel(ctx), got)
		}
		if err == nil {
			_, err = e.maps.Delete(context.WithoutCancel(ctx), "default", got.GetMetadata().GetName(), nil)
		}
		if err != nil {
			return fmt.Errorf("writer %d, round %d: %w", w, round, err)
		}
	}
	return nil
}

// list reads all over and over: never an older state than before.
func (l *load) list(ctx context.Context) error {
	last := int64(0)
	pace := time.NewTicker(loadPace)
	defer pace.Stop()
	for ctx.Err() == nil {
		<-pace.C
		list, err := l.e.maps.List(context.WithoutCancel(ctx), client.ListOptions{Namespace: "default"})
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		now, _ := strconv.ParseInt(list.ResourceVersion, 10, 64)
		if now < last {
			return fmt.Errorf("a list at %d after one at %d", now, last)
		}
		last = now
	}
	return nil
}

// follow puts the state together from events, until it has reached a revision.
func (v *view) follow(stream corev1.ConfigMapService_WatchClient) error {
	goal := int64(-1)
	for {
		select {
		case goal = <-v.reached:
		default:
		}
		if goal >= 0 && v.revision >= goal {
			return nil
		}
		resp, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		for _, event := range resp.GetEvents() {
			if err := v.apply(event); err != nil {
				return err
			}
		}
		v.begun = v.begun || resp.GetInitialEventsEnd()
		v.revision = max(v.revision, resp.GetRevision())
	}
}

func (v *view) apply(event *corev1.ConfigMapWatchEvent) error {
	obj := event.GetObject()
	name := obj.GetMetadata().GetName()
	revision, _ := strconv.ParseInt(obj.GetMetadata().GetResourceVersion(), 10, 64)
	have := v.objects[name]
	switch event.GetType() {
	case added:
		if have != nil {
			return fmt.Errorf("%s is added twice", name)
		}
		v.objects[name] = obj
	case modified:
		was, _ := strconv.Atoi(have.GetData()["k"])
		if now, _ := strconv.Atoi(obj.GetData()["k"]); have == nil || now != was+1 {
			return fmt.Errorf("%s goes from %v to %v", name, have.GetData(), obj.GetData())
		}
		v.objects[name] = obj
	case deleted:
		if have == nil || have.GetMetadata().GetUid() != obj.GetMetadata().GetUid() || have.GetData()["k"] != "4" {
			return fmt.Errorf("%s is deleted, it was %v", name, have)
		}
		delete(v.objects, name)
	}
	if v.begun && revision < v.revision {
		return fmt.Errorf("%s at %d after %d", name, revision, v.revision)
	}
	v.revision = max(v.revision, revision)
	return nil
}

// stop ends the load and holds what every watcher has put together to what there is.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.cancel()
	l.writers.Wait()
	// One more write that all can see, so that all have a revision to reach.
	end := configMap("end", "1")
	end.Metadata.Labels = map[string]string{"load": "yes"}
	last := must[*corev1.ConfigMap](t)(l.e.maps.Create(t.Context(), end))
	goal, _ := strconv.ParseInt(last.GetMetadata().GetResourceVersion(), 10, 64)
	for _, v := range l.views {
		v.reached <- goal
	}
	// Who has read the last write already waits for one more event.
	must[*corev1.ConfigMap](t)(l.e.maps.Patch(t.Context(), "default", "end", mergePatch, []byte(`{"data":{"k":"2"}}`), ""))
	l.watchers.Wait()
	close(l.errs)
	for err := range l.errs {
		if err != nil {
			t.Error(err)
		}
	}
	list := must[*client.List[*corev1.ConfigMap]](t)(l.e.maps.List(t.Context(), client.ListOptions{Namespace: "default"}))
	for i, v := range l.views {
		var want []string
		for _, m := range list.Items {
			if i%2 == 0 || m.GetMetadata().GetLabels()["load"] == "yes" {
				want = append(want, m.GetMetadata().GetName())
			}
		}
		if got := slices.Sorted(maps.Keys(v.objects)); !slices.Equal(got, want) {
			t.Errorf("watcher %d has %q, there is %q", i, got, want)
		}
	}
}
