package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"trireme.dev/cmd/trireme/internal/cli/trace"
	"trireme.dev/cmd/trireme/internal/otlpjson"
)

// errNoTrace is a trace that is not kept where it was looked for.
var errNoTrace = errors.New("no such trace")

// traceSource is where traces are asked for: the store of `trireme up`, or a Jaeger.
type traceSource struct {
	address string
	base    string
	client  *http.Client
}

// newTraceSource takes unix:///path, http://host:port or https://host:port, with a path where Jaeger has a base path.
func newTraceSource(address string) (*traceSource, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s := &traceSource{address: address, base: strings.TrimRight(address, "/"), client: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
		s.base = "http://traces"
		return s, nil
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("traces are asked for at %q: want unix:///PATH, http://HOST:PORT or https://HOST:PORT", address)
	}
	return s, nil
}

func (s *traceSource) close() { s.client.CloseIdleConnections() }

// get returns the spans of a trace; errNoTrace where it is not kept.
func (s *traceSource) get(ctx context.Context, id string) ([]*trace.Span, error) {
	var r otlpjson.Response
	code, err := s.ask(ctx, "/api/v3/traces/"+url.PathEscape(id), &r)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return nil, errNoTrace
	case r.Error != nil:
		return nil, fmt.Errorf("%s: %s", s.address, r.Error.Message)
	}
	return trace.FromOTLP(r.Result), nil
}

// find returns the ids of traces, 20 at most, in which a span of the service has the tag.
func (s *traceSource) find(ctx context.Context, service, key, value string) ([]string, error) {
	tags, err := json.Marshal(map[string]string{key: value})
	if err != nil {
		return nil, err
	}
	query := url.Values{"service": {service}, "tags": {string(tags)}, "limit": {"20"}}
	var found otlpjson.Found
	if _, err := s.ask(ctx, "/api/traces?"+query.Encode(), &found); err != nil {
		return nil, err
	}
	var ids []string
	for _, f := range found.Data {
		ids = append(ids, f.TraceID)
	}
	return ids, nil
}

func (s *traceSource) ask(ctx context.Context, path string, answer any) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+path, nil)
	if err != nil {
		return 0, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return 0, fmt.Errorf("cannot ask for traces at %s: %w; is it up? (`trireme up`, or Jaeger)", s.address, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("traces from %s: %w", s.address, err)
	}
	if err := json.Unmarshal(body, answer); err != nil && resp.StatusCode != http.StatusNotFound {
		return 0, fmt.Errorf("%s is neither a trace store of trireme nor a Jaeger: it answers %s", s.address, resp.Status)
	}
	return resp.StatusCode, nil
}
