package join

import (
	"sync"
	"time"
)

const (
	// firstWait follows one wrong token; each further one doubles it.
	firstWait = time.Second
	lastWait  = time.Minute
	// maxPeers bounds the memory of those who were wrong.
	maxPeers = 4096
)

// attempts makes whoever shows wrong tokens wait, by address. Guessing is hopeless without it too; with it, it is also
// cheap for us and leaves few lines in the log.
type attempts struct {
	mu    sync.Mutex
	peers map[string]attempt
}

type attempt struct {
	wrong int
	until time.Time
}

func newAttempts() *attempts { return &attempts{peers: map[string]attempt{}} }

// wait is how long the address still has to wait.
func (a *attempts) wait(peer string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return max(0, time.Until(a.peers[peer].until))
}

// wrong notes a wrong token.
func (a *attempts) wrong(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, known := a.peers[peer]; !known && len(a.peers) >= maxPeers {
		a.forget()
	}
	was := a.peers[peer]
	wait := lastWait
	if was.wrong < 6 {
		wait = firstWait << was.wrong
	}
	a.peers[peer] = attempt{wrong: was.wrong + 1, until: time.Now().Add(wait)}
}

// right forgets what was wrong before.
func (a *attempts) right(peer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.peers, peer)
}

// forget makes room: all who need not wait any more, or else whoever comes first.
func (a *attempts) forget() {
	now := time.Now()
	for peer, t := range a.peers {
		if now.After(t.until) {
			delete(a.peers, peer)
		}
	}
	for peer := range a.peers {
		if len(a.peers) <= maxPeers/2 { // so that the next ones need not go through all again
			return
		}
		delete(a.peers, peer)
	}
}
