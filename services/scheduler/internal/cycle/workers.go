package cycle

import "sync"

// workers run functions beside each other, each at once, in goroutines that wait for the next one when they are done: a
// goroutine that has run before has the stack that the work takes.
type workers struct {
	mu   sync.Mutex
	idle []chan func()
	wg   sync.WaitGroup // functions under way
}

// maxIdle goroutines wait.
const maxIdle = 256

// Go runs fn in a goroutine.
func (w *workers) Go(fn func()) {
	w.wg.Add(1)
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		next := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		next <- fn
		return
	}
	w.mu.Unlock()
	go w.work(fn)
}

func (w *workers) work(fn func()) {
	next := make(chan func(), 1) // so that who hands over does not wait
	for fn != nil {
		fn()
		w.mu.Lock()
		if len(w.idle) >= maxIdle {
			w.mu.Unlock()
			w.wg.Done()
			return
		}
		w.idle = append(w.idle, next)
		w.mu.Unlock()
		w.wg.Done()
		fn = <-next
	}
}

// Wait waits for all functions under way, and ends the goroutines. Nobody may call Go meanwhile.
func (w *workers) Wait() {
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, next := range w.idle {
		next <- nil
	}
	w.idle = nil
}
