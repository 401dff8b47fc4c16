package device

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

// A Link is the port of a physical function whose virtual ones go to guests: it has to be up, and
// to carry the fabric's packets.
type Link struct {
	PF topology.PCIAddr `json:"pf"`
	// MTU is the least, in bytes: a port drops frames of its virtual functions that are larger than its own MTU.
	MTU int `json:"mtu"`

	k *kernel
}

// linkState is how a port is.
type linkState struct {
	Missing bool `json:"missing,omitempty"` // the function has no network device
	MTU     int  `json:"mtu,omitempty"`
	Up      bool `json:"up,omitempty"` // as its administrator wants it, whatever the cable says
}

// Kind implements change.Op.
func (l *Link) Kind() string { return kindLink }

// Subject implements change.Op.
func (l *Link) Subject() string { return l.PF.String() }

// Read implements change.Op.
func (l *Link) Read(_ context.Context, s *change.System) (change.State, error) {
	_, st, err := l.read(s)
	if err != nil {
		return "", err
	}
	return change.Encode(st, nil)
}

// flagUp is IFF_UP of include/uapi/linux/if.h.
const flagUp = 1

// read reads the port that the physical function has now: its name may be another one after its driver was away.
func (l *Link) read(s *change.System) (netdev string, st linkState, err error) {
	netdev, err = function{s, l.k.orReal(), l.PF}.port()
	if err != nil || netdev == "" {
		return "", linkState{Missing: true}, err
	}
	mtu, err1 := s.Number(netFile(netdev, "mtu"))
	flags, err2 := s.Number(netFile(netdev, "flags"))
	return netdev, linkState{MTU: int(mtu), Up: flags&flagUp != 0}, errors.Join(err1, err2)
}

// netFile is where sysfs has a file of a network device. Source: Documentation/ABI/testing/sysfs-class-net.
func netFile(netdev, file string) string { return "/sys/class/net/" + netdev + "/" + file }

// Done implements change.Op.
func (l *Link) Done(state change.State) bool {
	st, err := change.Decode[linkState](state)
	return err == nil && !st.Missing && st.Up && st.MTU >= l.MTU
}

// Do implements change.Op.
func (l *Link) Do(_ context.Context, s *change.System) error {
	netdev, st, err := l.read(s)
	if err != nil {
		return err
	}
	if st.Missing {
		return noPort(l.PF)
	}
	return l.set(s, netdev, st, linkState{MTU: max(st.MTU, l.MTU), Up: true})
}

// Shell implements change.Manual.
func (l *Link) Shell() []string {
	return []string{netdevOf(l.PF),
		fmt.Sprintf("[ \"$(cat /sys/class/net/$dev/mtu)\" -ge %d ] || ip link set dev $dev mtu %[1]d", l.MTU),
		"ip link set dev $dev up"}
}

// netdevOf is the command that finds the network device of a physical function.
func netdevOf(pf topology.PCIAddr) string {
	return fmt.Sprintf("dev=$(ls %s/%s/net | head -n 1)", pciDevices, pf)
}

// noPort is the error of a physical function without a network device.
func noPort(pf topology.PCIAddr) error {
	return fmt.Errorf("%s has no network device: load its driver, or take it from whoever has it", pf)
}

// set writes what differs.
func (l *Link) set(s *change.System, netdev string, have, want linkState) error {
	k := l.k.orReal()
	if have.MTU != want.MTU {
		if err := k.write(s, netFile(netdev, "mtu"), strconv.Itoa(want.MTU)); err != nil {
			return fmt.Errorf("%s does not take MTU %d: %w", netdev, want.MTU, err)
		}
	}
	if have.Up == want.Up {
		return nil
	}
	// Read again: of the flags only one is ours.
	flags, err := s.Number(netFile(netdev, "flags"))
	if err != nil {
		return err
	}
	flags &^= flagUp
	if want.Up {
		flags |= flagUp
	}
	if err := k.write(s, netFile(netdev, "flags"), fmt.Sprintf("%#x", flags)); err != nil {
		return fmt.Errorf("%s does not go up or down: %w", netdev, err)
	}
	return nil
}

// Merge implements change.Merger: the MTU and whether the link is up, each for itself.
func (l *Link) Merge(_ context.Context, _ *change.System, u change.Undo) (change.State, []change.Changed, error) {
	want, err1 := change.Decode[linkState](u.Before)
	now, err2 := change.Decode[linkState](u.Now)
	if err := errors.Join(err1, err2); err != nil || want.Missing || now.Missing {
		return u.Before, nil, err
	}
	var changed []change.Changed
	if made := max(want.MTU, l.MTU); now.MTU != want.MTU && now.MTU != made {
		changed = append(changed, change.Changed{What: "MTU of the port of " + l.PF.String(),
			Found: strconv.Itoa(now.MTU), Set: strconv.Itoa(made)})
		want.MTU = now.MTU
	}
	if !now.Up && want.Up && !u.Cut { // a boot may not have come to it yet
		changed = append(changed, change.Changed{What: "port of " + l.PF.String(), Found: "down", Set: "up"})
		want.Up = false
	}
	state, err := change.Encode(want, nil)
	return state, changed, err
}

// Restore implements change.Op. Without a network device before and now there is nothing to do. With one at one of the
// two times only, its values cannot be brought back, which is an error.
func (l *Link) Restore(_ context.Context, s *change.System, before change.State) error {
	want, err := change.Decode[linkState](before)
	if err != nil {
		return err
	}
	netdev, have, err := l.read(s)
	if err != nil {
		return err
	}
	if have.Missing || want.Missing {
		if have.Missing == want.Missing {
			return nil
		}
		return fmt.Errorf("its MTU was %d and cannot be set: %w", want.MTU, noPort(l.PF))
	}
	return l.set(s, netdev, have, want)
}

// isInfiniBand reports whether a network device is of InfiniBand, where GUIDs stand for MAC
// addresses (ARPHRD_INFINIBAND of include/uapi/linux/if_arp.h).
func isInfiniBand(s *change.System, netdev string) (bool, error) {
	text, err := s.ValueOr(netFile(netdev, "type"), "")
	return strings.TrimSpace(text) == "32", err
}
