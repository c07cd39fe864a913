package measure

import (
	"sync"
	"sync/atomic"
)

// Parallel calls do with 0 to n-1 from so many writers. A writer ends with its first error; the first of all is returned.
func Parallel(n, writers int, do func(int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
