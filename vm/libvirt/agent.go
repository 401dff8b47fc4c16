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

// agentTimeout is how many seconds libvirt waits for the agent to answer. Agent commands return at
// once, so that one that takes this long means a guest that has stopped. It is less than what
// guest.Agent waits, whose error says less.
const agentTimeout = 25

// agentLimit bounds what libvirt asks the agent. It goes past only where libvirt itself hangs.
const agentLimit = (agentTimeout + 10) * time.Second

// agentCommand passes one command on and returns the agent's answer.
func (c *Conn) agentCommand(ctx context.Context, ref api.Domain, command string) (string, error) {
	out, err := ask(ctx, c, agentLimit, func(l *api.Libvirt) (api.OptString, error) {
		return l.QEMUDomainAgentCommand(ref, command, agentTimeout, 0)
	})
	return strings.Join(out, ""), err
}

// maxAnswer is what libvirt passes on of one command or answer: REMOTE_STRING_MAX of its protocol is 4 MiB.
const maxAnswer = 4 << 20

// An agentConn carries commands to the guest agent of one domain through libvirt, which shares it among all who ask.
//
// libvirt itself holds the agent's socket, whose chardev takes one connection at a time, so that
// nothing else can speak to it directly.
type agentConn struct {
	conn   *Conn
	domain api.Domain
	name   string
	done   chan struct{}
	close  func()
}

var _ guest.Conn = (*agentConn)(nil)

// Agent returns the guest agent of a domain of rackless. It does not wait until the agent answers.
// Closing it ends nothing of the Conn.
func (c *Conn) Agent(ctx context.Context, name string) (*guest.Agent, error) {
	d, err := c.own(ctx, name)
	if err != nil {
		return nil, err
	}
	a := &agentConn{conn: c, domain: d.ref, name: name, done: make(chan struct{})}
	a.close = sync.OnceFunc(func() { close(a.done) })
	return guest.NewAgent(a), nil
}

// agentPoll is the pause of AwaitAgent between two questions to the agent; libvirt logs each that
// it cannot pass on as an error.
const agentPoll = 2 * time.Second

// channelPoll is its pause between two looks at whether the guest has opened the channel: a
// sixteenth of the time that it has waited. A look costs libvirt half a millisecond, and on an
// emulated host, where guests take minutes, a hundred times as much.
func channelPoll(since time.Time) time.Duration {
	return min(max(100*time.Millisecond, time.Since(since)/16), agentPoll)
}

// agentChannel is the name of the agent's channel.
const agentChannel = "org.qemu.guest_agent.0"

// AwaitAgent is Agent for a guest that boots: it returns once the agent answers, or with an error
// when the domain ends or ctx does, which should have a limit.
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
			// Whatever libvirt says: a guest that boots, or has no time, may answer later.
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

// agentOpen reports whether a program in the guest has opened the agent's channel. A domain that
// does not run is an error.
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

// Call sends one command. What libvirt did not pass on, since the domain does not run or its agent
// does not answer, is a *qapi.Error of class qapi.ClassUnreachable: to send it again is safe.
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

// explain turns libvirt's words into what the error is.
func (a *agentConn) explain(command string, err error) error {
	said, ok := errors.AsType[api.Error](err)
	if !ok {
		return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
	}
	switch api.ErrorNumber(said.Code) {
	case api.ErrInternalError:
		// "internal error: unable to execute QEMU agent command 'guest-exec': Guest agent command failed, error was
		// '...'", in the language of the daemon.
		if _, reason, ok := strings.Cut(said.Message, "'"+command+"': "); ok {
			return &qapi.Error{Command: command, Class: "GenericError", Desc: reason}
		}
	case api.ErrOperationInvalid, api.ErrNoDomain, api.ErrArgumentUnsupported, api.ErrConfigUnsupported:
		return a.unreachable(command, said)
	case api.ErrAgentUnresponsive:
		// The code is also that of an answer that did not come in time ("Guest agent not available for now"), after
		// which the agent may have seen the command.
		if strings.Contains(said.Message, "is not connected") {
			return a.unreachable(command, said)
		}
	case api.ErrRPC:
		return fmt.Errorf("agent of %s: %s: %w: libvirt passes on at most %d MiB at once", a.name, command, err,
			maxAnswer>>20)
	}
	return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
}

// unreachable is the error of a command that the agent has not seen.
func (a *agentConn) unreachable(command string, said api.Error) error {
	return &qapi.Error{Command: command, Class: qapi.ClassUnreachable, Desc: fmt.Sprintf("agent of %s: %s", a.name,
		said.Message)}
}

// Done is closed by Close alone: libvirt finds the agent of a guest that was started again by itself.
func (a *agentConn) Done() <-chan struct{} { return a.done }

// Close ends the use of the agent.
func (a *agentConn) Close() error {
	a.close()
	return nil
}
