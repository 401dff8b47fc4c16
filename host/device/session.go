package device

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/machine/topology"
)

type peer struct{ local, remote netip.Addr }

// sshPeers returns the connection in which process pid was started, and all established connections of ssh servers.
func sshPeers(s *change.System, pid int) ([]peer, error) {
	var peers []peer
	if p, ok := sessionPeer(s, pid); ok {
		peers = append(peers, p)
	}
	established, err := serverPeers(s)
	if err != nil {
		return nil, err
	}
	for _, p := range established {
		peers = lists.Add(peers, p)
	}
	return peers, nil
}

// sessionPeer finds SSH_CONNECTION ("client port server port", ssh(1)) in the process or its ancestors: sudo and su
// remove the variable.
func sessionPeer(s *change.System, pid int) (peer, bool) {
	const deepest = 64 // also ends a loop in a simulated tree
	for range deepest {
		if pid <= 1 {
			break
		}
		dir := "/proc/" + strconv.Itoa(pid)
		environ, err := s.ReadFile(dir + "/environ")
		if err != nil {
			break // another user's process; its ancestors are unreadable too
		}
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			if value, ok := strings.CutPrefix(string(v), "SSH_CONNECTION="); ok {
				if p, ok := parseConnection(value); ok {
					return p, true
				}
			}
		}
		stat, err := s.ReadFile(dir + "/stat")
		if err != nil {
			break
		}
		// "pid (name) state parent ...": the name may contain anything (proc(5)).
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			break
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil {
			break
		}
	}
	return peer{}, false
}

// parseConnection drops zones and unmaps mapped addresses, which sshd writes but network devices do not list.
func parseConnection(text string) (peer, bool) {
	fields := strings.Fields(text)
	if len(fields) != 4 {
		return peer{}, false
	}
	remote, err1 := netip.ParseAddr(fields[0])
	local, err2 := netip.ParseAddr(fields[2])
	return peer{local.Unmap().WithZone(""), remote.Unmap().WithZone("")}, err1 == nil && err2 == nil
}

// Since OpenSSH 9.8, connections are served by sshd-session.
var sshServers = []string{"sshd", "sshd-session", "dropbear"}

func serverPeers(s *change.System) ([]peer, error) {
	proc, err := procfs.NewFS(s.Path("/proc"))
	if err != nil {
		return nil, err
	}
	all, err := proc.AllProcs()
	if err != nil {
		return nil, err
	}
	sockets := map[uint64]bool{} // by inode
	for _, p := range all {
		if name, err := p.Comm(); err != nil || !slices.Contains(sshServers, name) {
			continue
		}
		if err := addSockets(p, sockets); err != nil {
			return nil, fmt.Errorf("which ssh connections there are cannot be read: %w; run it as root", err)
		}
	}
	if len(sockets) == 0 {
		return nil, nil
	}
	return establishedPeers(proc, sockets)
}

func addSockets(p procfs.Proc, sockets map[uint64]bool) error {
	files, err := p.FileDescriptorTargets()
	for _, file := range files {
		var inode uint64
		if _, err := fmt.Sscanf(file, "socket:[%d]", &inode); err == nil {
			sockets[inode] = true
		}
	}
	if isGone(err) {
		return nil
	}
	return err
}

func establishedPeers(proc procfs.FS, sockets map[uint64]bool) ([]peer, error) {
	lines, err := tcpLines(proc)
	var peers []peer
	for _, l := range lines {
		if l.state == tcpEstablished && sockets[l.inode] && !slices.Contains(peers, l.peer) {
			peers = append(peers, l.peer)
		}
	}
	return peers, err
}

type tcpLine struct {
	peer
	localPort, remotePort uint64
	state                 uint64
	inode                 uint64 // 0 if no program has it
}

// States of TCP (include/net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpListen      = 10
)

// tcpLines fails if a table is unreadable, because unknown connections must not be cut off.
func tcpLines(proc procfs.FS) ([]tcpLine, error) {
	var all []tcpLine
	// procfs recommends netlink instead, but the machine may be simulated.
	//lint:ignore SA1019 netlink knows this machine only
	for _, table := range []func() (procfs.NetTCP, error){proc.NetTCP, proc.NetTCP6} {
		lines, err := table()
		if errors.Is(err, fs.ErrNotExist) {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			local, ok1 := netip.AddrFromSlice(line.LocalAddr)
			remote, ok2 := netip.AddrFromSlice(line.RemAddr)
			if ok1 && ok2 {
				all = append(all, tcpLine{peer{local.Unmap(), remote.Unmap()}, line.LocalPort, line.RemPort, line.St,
					line.Inode})
			}
		}
	}
	return all, nil
}

// functionsBehind looks through bridges, bonds and VLANs. The kernel links each device to its lower devices
// ("lower_eth0").
func functionsBehind(s *change.System, netdev string) ([]topology.PCIAddr, error) {
	var out []topology.PCIAddr
	seen := map[string]bool{}
	for next := []string{netdev}; len(next) > 0; {
		name := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[name] {
			continue
		}
		seen[name] = true
		dir, err := filepath.EvalSymlinks(s.Path("/sys/class/net/" + name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if a, ok := lastFunction(dir); ok {
			out = append(out, a)
			continue
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if lower, ok := strings.CutPrefix(e.Name(), "lower_"); ok {
				next = append(next, lower)
			}
		}
	}
	slices.SortFunc(out, topology.PCIAddr.Compare)
	return slices.Compact(out), nil
}
