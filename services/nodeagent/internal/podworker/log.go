package podworker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	corev1 "trireme.dev/proto/gen/trireme/core/v1"
	"trireme.dev/services/nodeagent/internal/logs"
	"trireme.dev/services/nodeagent/internal/runtime"
)

// podLogDir is where the output of a pod's containers goes, laid out as under /var/log/pods.
func podLogDir(dir string, pod *corev1.Pod) string {
	meta := pod.GetMetadata()
	return filepath.Join(dir, meta.GetNamespace()+"_"+meta.GetName()+"_"+meta.GetUid())
}

// LogPath is the file that the output of one run of a container goes to.
func LogPath(dir string, pod *corev1.Pod, container string, attempt int) string {
	return filepath.Join(podLogDir(dir, pod), container, strconv.Itoa(attempt)+".log")
}

// Attempts lists the runs of a container whose output is still there, oldest first.
func Attempts(dir string, pod *corev1.Pod, container string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join(podLogDir(dir, pod), container))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list logs: %w", err)
	}
	var attempts []int
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".log"); ok {
			if n, err := strconv.Atoi(name); err == nil {
				attempts = append(attempts, n)
			}
		}
	}
	sort.Ints(attempts)
	return attempts, nil
}

// The most that a log gives to a termination message, as in Kubernetes.
const (
	messageLines = 80
	messageBytes = 2048
)

// addLogMessages gives failed containers that left no message the end of their log, where their policy says so.
func (w *worker) addLogMessages(ctx context.Context) {
	if w.seen == nil {
		return
	}
	pod, _ := w.wanted()
	for _, c := range w.seen.Containers {
		if c.State != runtime.StateExited || c.ExitCode == 0 || c.TerminationMessage != "" || !fallsBack(pod, c.Name) {
			continue
		}
		message, known := w.messages[c.ID]
		if !known {
			lines := int64(messageLines)
			var out bytes.Buffer
			if err := logs.Read(ctx, c.LogPath, logs.Options{TailLines: &lines}, &out); err != nil && !errors.Is(err, fs.ErrNotExist) {
				w.m.logIfFailed(ctx, "read the log's end for a termination message", err)
			}
			data := out.Bytes()
			message = string(data[max(len(data)-messageBytes, 0):])
			w.messages[c.ID] = message
		}
		c.TerminationMessage = message
	}
}

func fallsBack(pod *corev1.Pod, container string) bool {
	for _, list := range [][]*corev1.Container{pod.GetSpec().GetContainers(), pod.GetSpec().GetInitContainers()} {
		for _, c := range list {
			if c.GetName() == container {
				return c.GetTerminationMessagePolicy() == "FallbackToLogsOnError"
			}
		}
	}
	return false
}

// removeLog removes a run's log with what rotation set aside.
func removeLog(path string) error {
	if path == "" {
		return nil
	}
	files, err := filepath.Glob(path + "*")
	if err != nil {
		return fmt.Errorf("remove log: %w", err)
	}
	var errs []error
	for _, f := range files {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove log: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) removeLogs(pod *corev1.Pod) error {
	if err := os.RemoveAll(podLogDir(m.cfg.LogDir, pod)); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	return nil
}
