package links

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// A packetSocket is an AF_PACKET socket: packet(7).
type packetSocket struct {
	fd      int
	index   int
	address net.HardwareAddr
}

// allProtocols is ETH_P_ALL in network order. Two EtherTypes are of interest, and a socket takes one or all.
func allProtocols() uint16 { return binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}) }

func openSocket(netdev string) (socket, error) {
	link, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil, err
	}
	// Without a protocol nothing arrives before the filter is there.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		return nil, errors.New("frames can be sent only by root: sudo rackless host links --probe")
	}
	if err != nil {
		return nil, fmt.Errorf("socket: %w", err)
	}
	s := &packetSocket{fd: fd, index: link.Index, address: link.HardwareAddr}
	err = errors.Join(s.filter(), s.join(nearest),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: allProtocols(), Ifindex: link.Index}))
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// filter lets only the probe's frames and LLDP in, so that traffic of the port costs nothing.
func (s *packetSocket) filter() error {
	const (
		loadHalf   = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS
		ifEqual    = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		returnThis = unix.BPF_RET | unix.BPF_K
	)
	program := []unix.SockFilter{
		{Code: loadHalf, K: 12},
		{Code: ifEqual, Jt: 1, K: etherType},
		{Code: ifEqual, Jf: 1, K: etherTypeLLDP},
		{Code: returnThis, K: 0xffff},
		{Code: returnThis, K: 0},
	}
	return unix.SetsockoptSockFprog(s.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
		&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// join makes the port take frames to a group. The kernel undoes that when the socket is closed.
func (s *packetSocket) join(group net.HardwareAddr) error {
	m := unix.PacketMreq{Ifindex: int32(s.index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
	copy(m.Address[:], group)
	return unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m)
}

// Address implements socket.
func (s *packetSocket) Address() net.HardwareAddr { return s.address }

// Send implements socket.
func (s *packetSocket) Send(frame []byte) error {
	err := unix.Sendto(s.fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: s.index, Halen: 6})
	if err != nil {
		return fmt.Errorf("send a frame: %w", err)
	}
	return nil
}

// Receive implements socket. It leaves out frames that this machine sends from the port.
func (s *packetSocket) Receive(deadline time.Time) ([]byte, error) {
	buf := make([]byte, 2048)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, nil
		}
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if errors.Is(err, unix.EINTR) || n == 0 && err == nil {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("poll: %w", err)
		}
		n, from, err := unix.Recvfrom(s.fd, buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENETDOWN): // the link went down meanwhile, which the result shows
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("receive: %w", err)
		}
		if a, ok := from.(*unix.SockaddrLinklayer); ok && a.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		return buf[:n], nil
	}
}

// Close implements socket.
func (s *packetSocket) Close() error { return unix.Close(s.fd) }
