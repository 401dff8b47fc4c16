package libvirt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"libvirt.org/go/libvirtxml"

	"github.com/rackless/rackless/guest"
	"github.com/rackless/rackless/qapi"
)

// agentTimeout is how many seconds libvirt waits for the agent to answer. Agent commands return at
// once, so that one that takes this long means a guest that has stopped. It is less than what
// guest.Agent waits, whose error says less.
const agentTimeout = 25

// maxAnswer is what libvirt passes on of one answer: REMOTE_STRING_MAX of its protocol is 4 MiB.
const maxAnswer = 4 << 20

// An agentConn carries commands to the guest agent of one domain through libvirt, which shares it among all who ask.
//
// libvirt itself holds the agent's socket, whose chardev takes one connection at a time, so that
// nothing else can speak to it directly.
type agentConn struct {
	conn   *Conn
	domain string // UUID
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
	a := &agentConn{conn: c, domain: d.UUID, name: name, done: make(chan struct{})}
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
		open, err := c.agentOpen(ctx, d.UUID)
		if err != nil {
			return nil, fmt.Errorf("wait for the agent of %s: %w", name, err)
		}
		pause := channelPoll(began)
		if open {
			_, err := c.run(ctx, queryLimit, "qemu-agent-command", "--domain", d.UUID, "--timeout",
				strconv.Itoa(agentTimeout), "--cmd", `{"execute":"guest-ping"}`)
			if err == nil {
				return c.Agent(ctx, name)
			}
			// Whatever virsh says: a guest that boots, or has no time, may answer later.
			if _, refused := errors.AsType[*virshError](err); !refused {
				return nil, fmt.Errorf("wait for the agent of %s: %w", name, err)
			}
			pause, said = agentPoll, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the agent of %s: %w; the last that was seen: %w", name, context.Cause(ctx),
				said)
		case <-time.After(pause):
		}
	}
}

// agentOpen reports whether a program in the guest has opened the agent's channel. A domain that
// does not run is an error.
func (c *Conn) agentOpen(ctx context.Context, id string) (bool, error) {
	d, err := c.look(ctx, id)
	if err != nil {
		return false, err
	}
	if !d.State.Active() {
		return false, fmt.Errorf("the domain is %s", d.State)
	}
	text, err := c.run(ctx, queryLimit, "dumpxml", "--domain", id)
	if err != nil {
		return false, gone(id, err)
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
	out, err := a.conn.run(ctx, queryLimit, "qemu-agent-command", "--domain", a.domain, "--timeout",
		strconv.Itoa(agentTimeout), "--cmd", asciiJSON(b.Bytes()))
	if err != nil {
		return a.explain(command, err)
	}
	var answer struct {
		Return json.RawMessage `json:"return"`
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return fmt.Errorf("agent of %s: %s: read %.80q: %w", a.name, command, out, err)
	}
	if answer.Return == nil {
		return fmt.Errorf("agent of %s: %s: an answer without return", a.name, command)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(answer.Return, result); err != nil {
		return fmt.Errorf("agent of %s: %s: decode %.200q: %w", a.name, command, answer.Return, err)
	}
	return nil
}

// Texts of libvirt's qemu_agent.c and qemu_domain.c.
const (
	agentRefused = "unable to execute QEMU agent command '"
	agentTooLong = "string in opaque data is too large"
)

// unreachable are the errors after which the agent has not seen the command. "Guest agent not
// available for now" is none of them: libvirt says so of an answer that did not come in time, too.
var unreachable = []string{
	"domain is not running", "QEMU guest agent is not connected", "guest agent is not configured",
	"failed to get domain", "Domain not found",
}

// explain turns virsh's words into what the error is.
func (a *agentConn) explain(command string, err error) error {
	v, refused := errors.AsType[*virshError](err)
	if !refused {
		return fmt.Errorf("agent of %s: %s: %w", a.name, command, err)
	}
	// internal error: unable to execute QEMU agent command 'guest-exec': Guest agent command failed, error was '...'
	if _, text, ok := strings.Cut(v.text, agentRefused); ok {
		_, reason, _ := strings.Cut(text, "': ")
		return &qapi.Error{Command: command, Class: "GenericError", Desc: reason}
	}
	for _, text := range unreachable {
		if strings.Contains(v.text, text) {
			return &qapi.Error{Command: command, Class: qapi.ClassUnreachable, Desc: fmt.Sprintf("agent of %s: %s",
				a.name, v.text)}
		}
	}
	if strings.Contains(v.text, "too large") || strings.Contains(v.text, "too long") ||
		strings.Contains(v.text, "Unable to encode") {
		return fmt.Errorf("agent of %s: %s: %s: libvirt passes on at most %d MiB at once", a.name, command, v.text,
			maxAnswer>>20)
	}
	return fmt.Errorf("agent of %s: %s: %s", a.name, command, v.text)
}

// Done is closed by Close alone: libvirt finds the agent of a guest that was started again by itself.
func (a *agentConn) Done() <-chan struct{} { return a.done }

// Close ends the use of the agent.
func (a *agentConn) Close() error {
	a.close()
	return nil
}

// asciiJSON writes what is beyond ASCII in a JSON text by its number; such characters are in
// strings alone. The text ends without a line break.
func asciiJSON(text []byte) string {
	var b strings.Builder
	for _, r := range strings.TrimSpace(string(text)) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		}
	}
	return b.String()
}
