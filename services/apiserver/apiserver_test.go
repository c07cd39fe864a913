package apiserver_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"trireme.dev/kit/pki"
	"trireme.dev/kit/rpc"
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
	dir := t.TempDir()
	ca, err := pki.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	files, err := ca.Issue(dir, "apiserver", pki.Identity{CommonName: "system:trireme-apiserver", DNSNames: []string{"localhost"}})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := start(t, apiserver.Config{
		DataDir: filepath.Join(dir, "etcd"), Listen: "127.0.0.1:0",
		CertFile: files.Cert, KeyFile: files.Key, CAFile: files.CA,
	})
	client, err := ca.Issue(dir, "controller", pki.Identity{CommonName: "system:trireme-controller"})
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, rpc.ClientConfig{
		Address: s.Addr().String(), ServerName: "localhost",
		CertFile: client.Cert, KeyFile: client.Key, CAFile: client.CA,
	})
	if _, err := corev1.NewNamespaceServiceClient(conn).Get(t.Context(), &metav1.GetRequest{Name: "kube-system"}); err != nil {
		t.Fatal(err)
	}
	plain := dial(t, rpc.ClientConfig{Address: s.Addr().String(), InsecureTCP: true})
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
