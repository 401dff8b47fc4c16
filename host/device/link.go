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

// A Link is the port of a physical function whose virtual functions go to guests. It must be up and carry the fabric's
// packets.
type Link struct {
	PF topology.PCIAddr `json:"pf"`
	// MTU is the least in bytes. A port drops larger frames of its virtual functions.
	MTU int `json:"mtu"`

	k *kernel
}

type linkState struct {
	Missing bool `json:"missing,omitempty"`
	MTU     int  `json:"mtu,omitempty"`
	Up      bool `json:"up,omitempty"` // administrative state, independent of the cable
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

// read finds the port each time: its name can change if its driver is unbound and bound again.
func (l *Link) read(s *change.System) (netdev string, st linkState, err error) {
	netdev, err = function{s, l.k.orReal(), l.PF}.port()
	if err != nil || netdev == "" {
		return "", linkState{Missing: true}, err
	}
	mtu, err1 := s.Number(netFile(netdev, "mtu"))
	flags, err2 := s.Number(netFile(netdev, "flags"))
	return netdev, linkState{MTU: int(mtu), Up: flags&flagUp != 0}, errors.Join(err1, err2)
}

// netFile is a path below sysfs. Source: Documentation/ABI/testing/sysfs-class-net.
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

func netdevOf(pf topology.PCIAddr) string {
	return fmt.Sprintf("dev=$(ls %s/%s/net | head -n 1)", pciDevices, pf)
}

func noPort(pf topology.PCIAddr) error {
	return fmt.Errorf("%s has no network device: load its driver, or take it from whoever has it", pf)
}

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
	// Only one of the flags is ours.
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

// Merge treats the MTU and the link separately.
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
	if !now.Up && want.Up && !u.Cut { // after a boot, the port may not be up yet
		changed = append(changed, change.Changed{What: "port of " + l.PF.String(), Found: "down", Set: "up"})
		want.Up = false
	}
	state, err := change.Encode(want, nil)
	return state, changed, err
}

// Restore returns an error if there is a network device at only one of the two times.
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

// isInfiniBand is for devices that have GUIDs instead of MAC addresses (ARPHRD_INFINIBAND of
// include/uapi/linux/if_arp.h).
func isInfiniBand(s *change.System, netdev string) (bool, error) {
	text, err := s.ValueOr(netFile(netdev, "type"), "")
	return strings.TrimSpace(text) == "32", err
}
