package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	api "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/internal/wait"
	"github.com/rackless/rackless/vm/guest"
	"github.com/rackless/rackless/vm/qapi"
)

// agentTimeout is in seconds. Agent commands return at once, so a longer wait means that the guest has stopped. It is
// shorter than the limit of guest.Agent, whose error says less.
const agentTimeout = 25

// agentLimit is exceeded only if libvirt itself hangs.
const agentLimit = (agentTimeout + 10) * time.Second

func (c *Conn) agentCommand(ctx context.Context, ref api.Domain, command string) (string, error) {
	out, err := ask(ctx, c, agentLimit, func(l *api.Libvirt) (api.OptString, error) {
		return l.QEMUDomainAgentCommand(ref, command, agentTimeout, 0)
	})
	return strings.Join(out, ""), err
}

// maxAnswer is libvirt's REMOTE_STRING_MAX.
const maxAnswer = 4 << 20

// An agentConn uses libvirt's agent calls. libvirt itself holds the agent's socket, whose chardev accepts one
// connection at a time.
type agentConn struct {
	conn   *Conn
	domain api.Domain
	name   string
	done   chan struct{}
	close  func()
}

var _ guest.Conn = (*agentConn)(nil)

// Agent does not wait for the guest agent to answer. Closing it does not affect the Conn.
func (c *Conn) Agent(ctx context.Context, name string) (*guest.Agent, error) {
	d, err := c.own(ctx, name)
	if err != nil {
		return nil, err
	}
	a := &agentConn{conn: c, domain: d.ref, name: name, done: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.done) })
	return guest.NewAgent(a), nil
}

// agentPoll is long: libvirt logs an error for each request that it cannot forward.
const agentPoll = 2 * time.Second

// channelPoll is a sixteenth of the time waited. A check costs libvirt half a millisecond, and a hundred times as much
// on an emulated host, whose guests take minutes.
func channelPoll(since time.Time) time.Duration {
	return min(max(100*time.Millisecond, time.Since(since)/16), agentPoll)
}

const agentChannel = "org.qemu.guest_agent.0"

// AwaitAgent waits until the agent of a booting guest answers. It fails if the domain or ctx ends; ctx should have a
// deadline.
func (c *Conn) AwaitAgent(ctx context.Context, name string) (*guest.Agent, error) {
	d, err := c.own(ctx, name)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	said := errors.New("its guest has not opened the channel of the agent")
	for {
		open, err := c.agentOpen(ctx, d.ref)
		if err != nil {
			return nil, fmt.Errorf("wait for the agent of %s: %w", name, err)
		}
		pause := channelPoll(began)
		if open {
			_, err := c.agentCommand(ctx, d.ref, `{"execute":"guest-ping"}`)
			if err == nil {
				return c.Agent(ctx, name)
			}
			// A booting or busy guest may answer later.
			if !refused(err) {
				return nil, fmt.Errorf("wait for the agent of %s: %w", name, err)
			}
			pause, said = agentPoll, err
		}
		if err := wait.For(ctx, pause); err != nil {
			return nil, fmt.Errorf("wait for the agent of %s: %w; the last that was seen: %w", name, err, said)
		}
	}
}

// agentOpen reports whether a program in the guest has opened the channel. The domain must run.
func (c *Conn) agentOpen(ctx context.Context, ref api.Domain) (bool, error) {
	d, err := c.look(ctx, ref)
	if err != nil {
		return false, err
	}
	if !d.State.Active() {
		return false, fmt.Errorf("the domain is %s", d.State)
	}
	text, err := c.xml(ctx, ref, 0)
	if err != nil {
		return false, err
	}
	now := libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}
	if err := now.Unmarshal(string(text)); err != nil {
		return false, fmt.Errorf("read domain XML: %w", err)
	}
	for _, channel := range now.Devices.Channels {
		if t := channel.Target; t != nil && t.VirtIO != nil && t.VirtIO.Name == agentChannel {
			return t.VirtIO.State == "connected", nil
		}
	}
	return false, errors.New("the domain has no channel for a guest agent")
}

// Call sends one command. If the domain or its agent is down, the error is a *qapi.Error of class
// qapi.ClassUnreachable, and repeating the command is safe.
func (a *agentConn) Call(ctx context.Context, command string, args, result any) error {
	request := map[string]any{"execute": command}
	if args != nil {
		request["arguments"] = args
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(request); err != nil {
		return fmt.Errorf("%s: encode: %w", command, err)
	}
	if b.Len() > maxAnswer {
		return fmt.Errorf("agent of %s: %s: a command of %d bytes: libvirt passes on at most %d MiB at once", a.name,
			command, b.Len(), maxAnswer>>20)
	}
	out, err := a.conn.agentCommand(ctx, a.domain, b.String())
	if err != nil {
		return a.explain(command, err)
	}
	answer, err := returned(out)
	if err == nil && result != nil {
		if err = json.Unmarshal(answer, result); err != nil {
			err = fmt.Errorf("decode %.200q: %w", answer, err)
		}
	}
	if err != nil {
		return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
	}
	return nil
}

func (a *agentConn) explain(command string, err error) error {
	said, ok := errors.AsType[api.Error](err)
	if !ok {
		return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
	}
	switch api.ErrorNumber(said.Code) {
	case api.ErrInternalError:
		// "internal error: unable to execute QEMU agent command 'guest-exec': Guest agent command failed, error was
		// '...'", in the daemon's language.
		if _, reason, ok := strings.Cut(said.Message, "'"+command+"': "); ok {
			return &qapi.Error{Command: command, Class: "GenericError", Desc: reason}
		}
	case api.ErrOperationInvalid, api.ErrNoDomain, api.ErrArgumentUnsupported, api.ErrConfigUnsupported:
		return a.unreachable(command, said)
	case api.ErrAgentUnresponsive:
		// The code also stands for a late answer ("Guest agent not available for now"); then the agent may have seen
		// the command.
		if strings.Contains(said.Message, "is not connected") {
			return a.unreachable(command, said)
		}
	case api.ErrRPC:
		return fmt.Errorf("agent of %s: %s: %w: libvirt passes on at most %d MiB at once", a.name, command, err,
			maxAnswer>>20)
	}
	return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
}

func (a *agentConn) unreachable(command string, said api.Error) error {
	return &qapi.Error{Command: command, Class: qapi.ClassUnreachable, Desc: fmt.Sprintf("agent of %s: %s", a.name,
		said.Message)}
}

// Done is closed only by Close, because libvirt reconnects to the agent of a restarted guest.
func (a *agentConn) Done() <-chan struct{} { return a.done }

// Close ends the use.
func (a *agentConn) Close() error {
	a.close()
	return nil
}
