package vfiouser

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// recvOrEnd returns nil if the connection has ended, even within a message.
func (c *client) recvOrEnd() []byte {
	c.t.Helper()
	m := make([]byte, headerSize)
	for n := 0; n < len(m); {
		k, err := unix.Read(c.fd, m[n:])
		if errors.Is(err, unix.EINTR) { // also after a signal of Go's scheduler
			continue
		}
		if k == 0 || errors.Is(err, unix.ECONNRESET) {
			return nil
		}
		if err != nil {
			c.t.Fatalf("after %d bytes of a message of %d: %v", n, len(m), err)
		}
		if n += k; n == headerSize {
			size := int(le.Uint32(m[4:]))
			if size < headerSize || size > maxData {
				c.t.Fatalf("a message of %d bytes", size)
			}
			m = append(m, make([]byte, size-headerSize)...)
		}
	}
	return m
}

func (c *client) mapRemote() {
	c.t.Helper()
	if _, errno := c.call(cmdDMAMap, quads(mapReadWrite|32, 0, 0x100000, 0x100000)); errno != 0 {
		c.t.Fatal(errno)
	}
}

// shorten makes the socket's buffer so small that a message is sent in pieces.
func (d *testDevice) shorten(t *testing.T) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if err := unix.SetsockoptInt(d.s.conn, unix.SOL_SOCKET, unix.SO_SNDBUF, 1); err != nil {
		t.Fatal(err)
	}
}

// A command is answered after one callTimeout even if the client does not answer several accesses, or stops repeatedly
// in its answer. The rest of a late answer is read as such.
func TestACommandWaitsOnceForALateAnswer(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name  string
		early int
	}{{"nothing", 0}, {"bytes of the header", 12}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			d, c := serve(t)
			c.mapRemote()
			tv := unix.NsecToTimeval((4 * callTimeout).Nanoseconds())
			if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			c.send(cmdRegionWrite, 0, region(0, 0, []byte{0xd0}))
			r := c.recv()
			if le.Uint16(r[2:]) != cmdDMARead {
				t.Fatalf("asked %x", r)
			}
			answer := append(bytes.Clone(r[:dmaData]), "hello"...)
			le.PutUint32(answer[4:], uint32(len(answer)))
			le.PutUint32(answer[8:], flagReply)
			sent := make(chan error, 1)
			go func() {
				for i := range x.early {
					if _, err := unix.Write(c.fd, answer[i:i+1]); err != nil {
						sent <- err
						return
					}
					time.Sleep(callTimeout / 8)
				}
				sent <- nil
			}()
			w := c.recv()
			if le.Uint16(w[2:]) != cmdRegionWrite || le.Uint32(w[8:]) != flagReply {
				t.Errorf("instead of the reply to the write came %x", w)
			}
			if took := time.Since(start); took > callTimeout*7/4 { // a busy machine is late, but not by another wait
				t.Errorf("the write took %v", took)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			if _, err := unix.Write(c.fd, answer[x.early:]); err != nil {
				t.Fatal(err)
			}
			if p, errno := c.call(cmdRegionRead, append(quads(0), words(0, 1)...)); errno != 0 || p[16] != 0xd0 {
				t.Errorf("after the late answer: %v %x", errno, p)
			}
			if got := d.told(); got != "connected " {
				t.Errorf("the device was told %q", got)
			}
		})
	}
}

// A client that reads late gets the beginning of a message, and would take another for the rest.
func TestNothingFollowsHalfAMessage(t *testing.T) {
	t.Parallel()
	d, c := serve(t)
	c.mapRemote()
	d.shorten(t)
	d.s.Mem.lock.RLock()
	if d.s.Mem.Write(0x100000, make([]byte, maxCall)) {
		t.Error("memory was written without an answer")
	}
	d.s.Mem.lock.RUnlock()
	read := make([]byte, headerSize, headerSize+16)
	le.PutUint16(read[2:], cmdRegionRead)
	read = append(read, append(quads(0), words(0, 4)...)...)
	le.PutUint32(read[4:], uint32(len(read)))
	_, _ = unix.Write(c.fd, read) // fails if the connection has ended
	if m := c.recvOrEnd(); m != nil {
		t.Errorf("a message followed: %.64x", m)
	}
	dial(t, d.s.cfg.Path).call(cmdReset, nil)
	if got := d.told(); got != "connected disconnected connected reset" {
		t.Errorf("the device was told %q", got)
	}
}

func TestMessagesOfThreadsAreNotMixed(t *testing.T) {
	t.Parallel()
	d, c := serve(t)
	c.mapRemote()
	d.shorten(t)
	const threads = 4
	var all sync.WaitGroup
	for i := range threads {
		all.Go(func() {
			d.s.Mem.lock.RLock()
			defer d.s.Mem.lock.RUnlock()
			if !d.s.Mem.Write(0x100000, bytes.Repeat([]byte{byte(i + 1)}, maxCall)) {
				t.Errorf("thread %d: memory was not written", i)
			}
		})
	}
	var sum int
	for range threads {
		time.Sleep(sendTimeout / 16)
		r := c.recvOrEnd()
		if len(r) != dmaData+maxCall {
			t.Fatalf("a message of %d bytes", len(r))
		}
		data := r[dmaData:]
		if !bytes.Equal(data, bytes.Repeat(data[:1], len(data))) {
			t.Error("the data of a message are of several threads")
		}
		sum += int(data[0])
		c.replyDMA(r, nil)
	}
	all.Wait()
	if sum != 1+2+3+4 {
		t.Errorf("the sum of the messages is %d", sum)
	}
}

// A thread that waits for an answer may read a message with lost files, and another reads next.
func TestLostFilesEndTheConnection(t *testing.T) {
	t.Parallel()
	_, c := serve(t)
	c.mapRemote()
	c.send(cmdRegionWrite, 0, region(0, 0, []byte{0xd0}))
	c.recv()
	fds := make([]int, 2*maxFDs)
	for i := range fds {
		fds[i] = c.fd
	}
	c.send(cmdDMAMap, 0, quads(mapReadWrite|32, 0, 0x300000, 0x1000), fds...)
	for m := c.recvOrEnd(); m != nil; m = c.recvOrEnd() {
		if le.Uint32(m[8:])&0xf == flagReply && le.Uint16(m[2:]) == cmdDMAMap {
			t.Error("the mapping was answered")
		}
		if le.Uint32(m[8:])&0xf != flagReply {
			t.Errorf("the server continues with command %d", le.Uint16(m[2:]))
			return
		}
	}
}

// QEMU sends without blocking, and takes a message sent in part for sent. Doorbells fill its socket if the server is
// busy.
func TestAnAnswerIsSentAsAWhole(t *testing.T) {
	answer := make([]byte, dmaData+maxCall)
	doorbell := make([]byte, headerSize+16+8)
	var whole, refused int
	for doorbells := range 400 {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range doorbells {
			_, _ = unix.Write(fds[0], doorbell)
		}
		switch n, err := unix.Write(fds[0], answer); {
		case errors.Is(err, unix.EAGAIN):
			refused++
		case n == len(answer):
			whole++
		default:
			t.Errorf("after %d doorbells the socket took %d of %d bytes: %v", doorbells, n, len(answer), err)
		}
		_, _ = unix.Close(fds[0]), unix.Close(fds[1])
	}
	if whole == 0 || refused == 0 {
		t.Errorf("%d answers were taken and %d refused, want some of both", whole, refused)
	}
}

// After an error of the protocol QEMU does not read any more, but still sends.
func TestAClientThatDoesNotReadIsDisconnected(t *testing.T) {
	t.Parallel()
	d, c := serve(t)
	c.call(cmdReset, nil)
	if err := unix.Shutdown(c.fd, unix.SHUT_RD); err != nil {
		t.Fatal(err)
	}
	c.send(cmdRegionRead, 0, append(quads(0), words(0, 4)...))
	dial(t, d.s.cfg.Path).call(cmdReset, nil)
	if got := d.told(); got != "connected reset disconnected connected reset" {
		t.Errorf("the device was told %q", got)
	}
}
