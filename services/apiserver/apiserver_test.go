package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/client"
	"trireme.dev/client/apierr"
	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
	componentv1 "trireme.dev/proto/gen/trireme/component/v1"
	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	metav1 "trireme.dev/proto/gen/trireme/meta/v1"
	"trireme.dev/services/apiserver"
)

// start runs a gateway with embedded etcd and returns how to stop it.
func start(t *testing.T, cfg apiserver.Config) (*apiserver.Server, func()) {
	t.Helper()
	s, err := apiserver.New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	begin := time.Now()
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Serving():
		t.Logf("ready after %v", time.Since(begin))
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("not ready")
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func dial(t *testing.T, cfg rpc.ClientConfig) *grpc.ClientConn {
	t.Helper()
	conn, err := rpc.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestRestartKeepsObjectsAndResumesWatches(t *testing.T) {
	dir := t.TempDir()
	cfg := apiserver.Config{DataDir: filepath.Join(dir, "etcd"), Socket: filepath.Join(dir, "a.sock")}
	_, stop := start(t, cfg)
	maps := corev1.NewConfigMapServiceClient(dial(t, rpc.ClientConfig{Address: "unix://" + cfg.Socket}))
	object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"}, Data: map[string]string{"k": "1"}}
	created, err := maps.Create(t.Context(), &corev1.CreateConfigMapRequest{Object: object})
	if err != nil {
		t.Fatal(err)
	}
	created.Data["k"] = "2"
	updated, err := maps.Update(t.Context(), &corev1.UpdateConfigMapRequest{Object: created})
	if err != nil {
		t.Fatal(err)
	}
	stop()

	start(t, cfg)
	maps = corev1.NewConfigMapServiceClient(dial(t, rpc.ClientConfig{Address: "unix://" + cfg.Socket}))
	got, err := maps.Get(t.Context(), &metav1.GetRequest{Namespace: "default", Name: "a"})
	if err != nil || !proto.Equal(got, updated) {
		t.Fatalf("after a restart: %v, %v", got, err)
	}
	// History from before the restart comes from etcd, not from what the gateway remembers.
	watch, err := maps.Watch(t.Context(), &metav1.WatchRequest{ResourceVersion: created.Metadata.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	resp, err := watch.Recv()
	if err != nil || len(resp.Events) != 1 || !proto.Equal(resp.Events[0].Object, updated) {
		t.Fatalf("resumed watch: %v, %v", resp, err)
	}
}

func TestMutualTLS(t *testing.T) {
	c := newCluster(t)
	conn := c.as("system:trireme-controller", nil)
	if _, err := corev1.NewNamespaceServiceClient(conn).Get(t.Context(), &metav1.GetRequest{Name: "kube-system"}); err != nil {
		t.Fatal(err)
	}
	plain := dial(t, rpc.ClientConfig{Address: c.addr, InsecureTCP: true})
	if _, err := corev1.NewNamespaceServiceClient(plain).Get(t.Context(), &metav1.GetRequest{Name: "kube-system"}); err == nil {
		t.Fatal("a caller without a certificate got an answer")
	}
}

func TestConfigNamesAllThatIsWrong(t *testing.T) {
	_, err := apiserver.New(apiserver.Config{EtcdCertFile: "x", Listen: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("accepted")
	}
	want := "--data-dir or --etcd-endpoints: one is needed\n" +
		"--etcd-cert, --etcd-key and --etcd-ca belong together\n" +
		"--listen needs --cert, --key and --ca (or --insecure)"
	if err.Error() != want {
		t.Fatalf("got\n%v\nwant\n%s", err, want)
	}
}

// A full store is named as such, with its quota and what to do, and that helps.
func TestAFullStoreNamesTheWayOut(t *testing.T) {
	dir := t.TempDir()
	cfg := apiserver.Config{DataDir: filepath.Join(dir, "etcd"), Socket: filepath.Join(dir, "a.sock"), EtcdQuota: 2 << 20}
	start(t, cfg)
	conn := dial(t, rpc.ClientConfig{Address: "unix://" + cfg.Socket})
	maps := client.For[*corev1.ConfigMap](conn)
	object := &corev1.ConfigMap{Metadata: &metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	var err error
	for n := 0; n < 200 && err == nil; n++ { // of one object: what fills the store is history
		object.Data = map[string]string{"n": fmt.Sprint(n), "k": strings.Repeat("x", 64<<10)}
		if _, err = maps.Update(t.Context(), object); apierr.IsNotFound(err) {
			_, err = maps.Create(t.Context(), object)
		}
	}
	if err == nil || !apierr.IsUnavailable(err) || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), "quota of 2 MiB") || !strings.Contains(err.Error(), "trireme defragment") {
		t.Fatalf("a full store: %v, want one line with the quota and the way out", err)
	}
	maintenance := componentv1.NewMaintenanceServiceClient(conn)
	status, err := maintenance.Status(t.Context(), &componentv1.StatusRequest{})
	if err != nil || len(status.GetMembers()) != 1 || status.GetMembers()[0].GetAlarms()[0] != "NOSPACE" || status.GetQuotaBytes() != 2<<20 {
		t.Fatalf("status of a full store: %v, %v", status, err)
	}
	room, err := maintenance.Defragment(t.Context(), &componentv1.DefragmentRequest{})
	if err != nil || room.GetAfterBytes() >= room.GetBeforeBytes() {
		t.Fatalf("defragment: %v, %v", room, err)
	}
	object.Data = map[string]string{"k": "small"}
	if _, err := maps.Update(t.Context(), object); err != nil {
		t.Fatalf("a write after room was made: %v", err)
	}
}

// Only those who may have everything get a snapshot: it holds all secrets.
func TestASnapshotIsForAdministrators(t *testing.T) {
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(name string, id pki.Identity) pki.Files {
		files, err := ca.Issue(dir, name, id)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	server := issue("apiserver", pki.Identity{CommonName: "system:trireme-apiserver", DNSNames: []string{"localhost"}})
	s, _ := start(t, apiserver.Config{
		DataDir: filepath.Join(dir, "etcd"), Listen: "127.0.0.1:0", CertFile: server.Cert, KeyFile: server.Key, CAFile: server.CA,
	})
	take := func(id pki.Identity) error {
		files := issue(id.CommonName, id)
		conn := dial(t, rpc.ClientConfig{Address: s.Addr().String(), ServerName: "localhost", CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA})
		stream, err := componentv1.NewMaintenanceServiceClient(conn).Snapshot(t.Context(), &componentv1.SnapshotRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return apierr.FromStatus(err)
	}
	if err := take(pki.Identity{CommonName: "system:node:a", Organizations: []string{"system:nodes"}}); !apierr.IsForbidden(err) {
		t.Errorf("a node's snapshot: %v, want Forbidden", err)
	}
	if err := take(pki.Identity{CommonName: "admin", Organizations: []string{"system:masters"}}); err != nil {
		t.Errorf("an administrator's snapshot: %v", err)
	}
}
