package emulated

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rackless/rackless/qapi"
	"github.com/rackless/rackless/rack"
	"github.com/rackless/rackless/vm"
)

// setDown gives the NIC at a port of the switch its carrier, or takes it away. An adapter is of this process, and a NIC
// of QEMU's own is told by QMP. A node that does not run learns it when its NIC connects to the switch.
func (a *adapters) setDown(port string, down bool) error {
	a.mu.Lock()
	a.off[port] = down
	have := a.there[port]
	a.mu.Unlock()
	if have != nil {
		have.port.SetLink(!down)
		return nil
	}
	r, err := rack.Open(rack.Dirs{Run: filepath.Dir(a.dir)}, filepath.Base(a.dir))
	if err != nil {
		return err
	}
	for _, n := range r.State.Lab.Nodes {
		for i := range n.NICs {
			if rack.PortName(n.Name, i) == port && !n.ConnectX() {
				err := setCarrier(filepath.Join(a.dir, n.Name, vm.SocketQMP), fmt.Sprintf("n%d", i), !down)
				if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
					return nil // it does not run
				}
				return err
			}
		}
	}
	return nil
}

// carrierLimit bounds the wait for a QEMU that speaks with another client, or takes the state of its template, in which
// every NIC has a carrier.
const carrierLimit = 30 * time.Second

var errIncoming = errors.New("it still takes the state of its template")

// setCarrier sets the carrier of a QEMU's network device.
func setCarrier(socket, netdev string, up bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), carrierLimit)
	defer cancel()
	for {
		err := tryCarrier(ctx, socket, netdev, up)
		if !errors.Is(err, errIncoming) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func tryCarrier(ctx context.Context, socket, netdev string, up bool) error {
	q, err := qapi.DialQMP(ctx, socket)
	if err != nil {
		return err
	}
	defer q.Close()
	var st struct {
		Status string `json:"status"`
	}
	if err := q.Call(ctx, "query-status", nil, &st); err != nil {
		return err
	}
	if st.Status == "inmigrate" {
		return fmt.Errorf("%s: %w", socket, errIncoming)
	}
	return q.Call(ctx, "set_link", map[string]any{"name": netdev, "up": up}, nil)
}
