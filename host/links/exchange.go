package links

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// sends is how often each frame is sent: a port may drop the first frames after its link came up.
const sends = 3

// receivePoll limits the time that a socket waits, so that the end of the probe is noticed.
const receivePoll = 50 * time.Millisecond

// An exchange is one round of frames between ports.
type exchange struct {
	ports   []Port
	sockets []socket // nil for ports that take no part
	id      string

	mu    sync.Mutex
	heard map[arrival]bool
	lldp  map[int]Neighbour // by number of the port
}

type arrival struct {
	from, at int
	way      Way
}

func newExchange(ports []Port, sockets []socket) *exchange {
	return &exchange{ports: ports, sockets: sockets, id: rand.Text(), heard: map[arrival]bool{},
		lldp: map[int]Neighbour{}}
}

// run sends from each port in turn while all others listen, and listens for the given time after the last frame.
func (x *exchange) run(ctx context.Context, wait time.Duration) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	errs := make(chan error, len(x.sockets))
	var listeners sync.WaitGroup
	for i, s := range x.sockets {
		if s == nil {
			continue
		}
		listeners.Go(func() {
			if err := x.listen(ctx, i, s); err != nil {
				errs <- fmt.Errorf("%s: %w", x.ports[i].Netdev, err)
			}
		})
	}
	err := x.send(ctx)
	if err == nil {
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		err = context.Cause(ctx)
	}
	stop()
	listeners.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return err
}

func (x *exchange) send(ctx context.Context) error {
	for range sends {
		for i, s := range x.sockets {
			if s == nil {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			for _, way := range []Way{Cable, Network} {
				frame, err := greeting{Run: x.id, Port: i, Way: way}.frame(s.Address())
				if err == nil {
					err = s.Send(frame)
				}
				if err != nil {
					return fmt.Errorf("%s: %w", x.ports[i].Netdev, err)
				}
			}
		}
		// Others may miss frames that come at once.
		select {
		case <-ctx.Done():
		case <-time.After(receivePoll):
		}
	}
	return nil
}

func (x *exchange) listen(ctx context.Context, at int, s socket) error {
	for ctx.Err() == nil {
		frame, err := s.Receive(time.Now().Add(receivePoll))
		if err != nil {
			return err
		}
		x.arrived(at, frame)
	}
	return nil
}

// arrived notes a frame. Frames of other machines that run a probe have another number of the run.
func (x *exchange) arrived(at int, frame []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n, ok := parseLLDP(frame); ok {
		x.lldp[at] = n
		return
	}
	g, ok := parseGreeting(frame)
	if !ok || g.Run != x.id || g.Port == at || g.Port < 0 || g.Port >= len(x.ports) {
		return
	}
	x.heard[arrival{g.Port, at, g.Way}] = true
}

// note writes the arrivals into the ports. A frame to the nearest bridge that arrived has passed no bridge.
func (x *exchange) note() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.ports {
		for k := range x.ports {
			way := Way("")
			if x.heard[arrival{i, k, Network}] {
				way = Network
			}
			if x.heard[arrival{i, k, Cable}] {
				way = Cable
			}
			if way != "" {
				x.ports[i].Joined = append(x.ports[i].Joined, Joint{x.ports[k].Netdev, way})
			}
		}
		slices.SortFunc(x.ports[i].Joined, byName)
		if n, ok := x.lldp[i]; ok && x.ports[i].Neighbour == nil {
			x.ports[i].Neighbour = &n
		}
	}
}
