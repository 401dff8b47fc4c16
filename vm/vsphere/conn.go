// Package vsphere reads the hosts of a vCenter or of a single ESXi host, and changes virtual machines and hosts there
// according to a plan, in steps of package change. Losing the connection is like a kill.
//
// All of this has only been tested against vCenter's simulator, never against a vCenter.
package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vmware/govmomi"
	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/session"
	"github.com/vmware/govmomi/view"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/rackless/rackless/internal/trace"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/dump/esxi"
	"github.com/rackless/rackless/machine/topology"
)

// A Login is a vCenter's URL and user. It is in no file of rackless; String omits user and password.
type Login struct {
	url      *url.URL // without a user
	user     *url.Userinfo
	guest    *url.Userinfo // for guests; may be nil
	insecure bool
}

// insecureKey in a Login's URL turns off the check of the certificate.
const insecureKey = "no_verify"

// variables are govc's.
var variables = []string{"GOVC_URL", "GOVC_USERNAME", "GOVC_PASSWORD", "GOVC_INSECURE", "GOVC_GUEST_LOGIN"}

// ReadLogin reads govc's environment variables. Missing ones are read from a file of lines NAME=VALUE with mode 0600:
// the one in RACKLESS_VSPHERE, or rackless/vsphere in the user's configuration directory.
func ReadLogin(getenv func(string) string) (*Login, error) {
	values, path, err := readFile(getenv)
	if err != nil {
		return nil, err
	}
	for _, name := range variables {
		if v := getenv(name); v != "" {
			values[name] = v
		}
	}
	if values["GOVC_URL"] == "" {
		return nil, fmt.Errorf("no vCenter is named: set GOVC_URL, GOVC_USERNAME and GOVC_PASSWORD, or write them "+
			"into %s (mode 0600)", path)
	}
	u, err := soap.ParseURL(values["GOVC_URL"])
	if err != nil { // it may quote a password
		return nil, errors.New("GOVC_URL is not a URL such as https://vcenter.example.org/sdk")
	}
	l := &Login{user: u.User}
	if values["GOVC_USERNAME"] != "" {
		l.user = url.UserPassword(values["GOVC_USERNAME"], values["GOVC_PASSWORD"])
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("GOVC_URL begins with %s://: want https://, since it carries a password", u.Scheme)
	}
	if l.user.Username() == "" {
		return nil, errors.New("GOVC_USERNAME and GOVC_PASSWORD are not set")
	}
	l.insecure = u.Query().Get(insecureKey) == "1"
	if text := values["GOVC_INSECURE"]; text != "" {
		if l.insecure, err = strconv.ParseBool(text); err != nil {
			return nil, fmt.Errorf("GOVC_INSECURE is %q: want 1 or 0", text)
		}
	}
	if text := values["GOVC_GUEST_LOGIN"]; text != "" {
		user, password, ok := strings.Cut(text, ":")
		if !ok || user == "" { // may be a password
			return nil, errors.New("GOVC_GUEST_LOGIN is not USER:PASSWORD")
		}
		l.guest = url.UserPassword(user, password)
	}
	l.url = &url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return l, nil
}

func readFile(getenv func(string) string) (values map[string]string, path string, err error) {
	values = map[string]string{}
	path = getenv("RACKLESS_VSPHERE")
	asked := path != ""
	if !asked {
		dir, err := os.UserConfigDir()
		if err != nil {
			return values, "the file that RACKLESS_VSPHERE names", nil
		}
		path = filepath.Join(dir, "rackless", "vsphere")
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return values, path, nil
	}
	if err != nil {
		return nil, path, err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, path, fmt.Errorf("%s has mode %#o, and it holds a password: chmod 600 %s", path, info.Mode().Perm(),
			path)
	}
	text, err := userfile.Read(path, userfile.Text)
	if err != nil {
		return nil, path, err
	}
	for i, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if !ok || !slices.Contains(variables, name) {
			return nil, path, fmt.Errorf("%s:%d: want %s=VALUE", path, i+1, strings.Join(variables, "=VALUE or "))
		}
		values[name] = strings.Trim(value, `"'`)
	}
	return values, path, nil
}

// String omits user and password.
func (l *Login) String() string {
	u := *l.url
	if l.insecure {
		u.RawQuery = insecureKey + "=1"
	}
	return u.String()
}

// A Conn is a session at a vCenter or an ESXi host, safe for concurrent use.
type Conn struct {
	URL    string // without user and password
	client *govmomi.Client
	guest  *url.Userinfo // for guests; may be nil
	// asking is held for concurrent calls of nodes: vCenter's simulator deadlocks if they overlap in one session.
	asking sync.Mutex

	// Labs would repeat these queries hundreds of times.
	mu        sync.Mutex
	places    map[string]place
	hostsSeen map[string]types.ManagedObjectReference
}

// Connect opens a session, which Close ends.
func Connect(ctx context.Context, l *Login) (*Conn, error) {
	trace.Runs("", []string{"vsphere", l.String()})
	s := soap.NewClient(l.url, l.insecure)
	if err := s.SetRootCAs(os.Getenv("GOVC_TLS_CA_CERTS")); os.Getenv("GOVC_TLS_CA_CERTS") != "" && err != nil {
		return nil, fmt.Errorf("GOVC_TLS_CA_CERTS: %w", err)
	}
	// By default only two connections stay open, and each further one costs a TLS handshake.
	t := s.DefaultTransport()
	t.MaxIdleConnsPerHost = t.MaxIdleConns
	s.Client.Transport = readToTheEnd{t}
	v, err := vim25.NewClient(ctx, s)
	if err != nil {
		if soap.IsCertificateUntrusted(err) {
			err = fmt.Errorf("%w\nname its authority in GOVC_TLS_CA_CERTS; --insecure trusts whoever answers", err)
		}
		return nil, fmt.Errorf("%s: %w", l, err)
	}
	c := &Conn{URL: l.String(), guest: l.guest, places: map[string]place{},
		client: &govmomi.Client{Client: v, SessionManager: session.NewManager(v)}}
	if err := c.client.Login(ctx, l.user); err != nil {
		return nil, fmt.Errorf("%s: login as %s: %w", l, l.user.Username(), err)
	}
	return c, nil
}

// readToTheEnd is needed because the SOAP client stops at the last element, and http.Transport does not reuse a
// connection with unread data.
type readToTheEnd struct{ http.RoundTripper }

func (t readToTheEnd) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = restReader{res.Body}
	}
	return res, err
}

type restReader struct{ io.ReadCloser }

const maxRest = 64 << 10

func (r restReader) Close() error {
	_, _ = io.CopyN(io.Discard, r.ReadCloser, maxRest) // a lost connection is not reused
	return r.ReadCloser.Close()
}

// Open connects to the vCenter in this process's environment. at, unless "", is the URL of an earlier session, which
// must be the same.
func Open(ctx context.Context, at string) (*Conn, error) {
	l, err := ReadLogin(os.Getenv)
	if err != nil {
		return nil, err
	}
	if at != "" {
		u, err := url.Parse(at)
		if err != nil || u.Host != l.url.Host {
			return nil, fmt.Errorf("it is at %s, and the login is for %s: set GOVC_URL", at, l)
		}
		l.insecure = l.insecure || u.Query().Get(insecureKey) == "1"
	}
	return Connect(ctx, l)
}

// Close ends the session.
func (c *Conn) Close(ctx context.Context) error {
	defer c.client.CloseIdleConnections()
	return c.client.Logout(ctx)
}

// Hosts returns all names, sorted.
func (c *Conn) Hosts(ctx context.Context) ([]string, error) {
	refs, err := c.hosts(ctx)
	return slices.Sorted(maps.Keys(refs)), err
}

func (c *Conn) hosts(ctx context.Context) (map[string]types.ManagedObjectReference, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hostsSeen != nil {
		return c.hostsSeen, nil
	}
	v, err := view.NewManager(c.client.Client).CreateContainerView(ctx, c.client.ServiceContent.RootFolder,
		[]string{"HostSystem"}, true)
	if err != nil {
		return nil, err
	}
	defer v.Destroy(context.WithoutCancel(ctx)) // also ends with the session
	var found []mo.HostSystem
	if err := v.Retrieve(ctx, []string{"HostSystem"}, []string{"name"}, &found); err != nil {
		return nil, err
	}
	all := map[string]types.ManagedObjectReference{}
	for _, h := range found {
		all[h.Name] = h.Self
	}
	c.hostsSeen = all
	return all, nil
}

func (c *Conn) host(ctx context.Context, name string) (*object.HostSystem, error) {
	all, err := c.hosts(ctx)
	if err != nil {
		return nil, err
	}
	if ref, ok := all[name]; ok {
		return object.NewHostSystem(c.client.Client, ref), nil
	}
	names := slices.Sorted(maps.Keys(all))
	if len(names) > 8 {
		names = append(names[:8], "...")
	}
	return nil, fmt.Errorf("%s has no host %q; it has %s", c.URL, name, strings.Join(names, ", "))
}

func (c *Conn) hostName(ctx context.Context, ref types.ManagedObjectReference) (string, error) {
	all, err := c.hosts(ctx)
	for name, host := range all {
		if host == ref {
			return name, err
		}
	}
	return ref.Value, err
}

// Read reads a host.
func (c *Conn) Read(ctx context.Context, name string) (*topology.Host, error) {
	h, err := c.host(ctx, name)
	if err != nil {
		return nil, err
	}
	var content []types.ObjectContent
	err = property.DefaultCollector(c.client.Client).RetrieveOne(ctx, h.Reference(), esxi.Properties(), &content)
	if err != nil {
		return nil, fmt.Errorf("host %s: %w", name, err)
	}
	if len(content) != 1 {
		return nil, fmt.Errorf("host %s: it is gone", name)
	}
	tenants, err := c.tenants(ctx, h.Reference())
	if err != nil {
		return nil, fmt.Errorf("the virtual machines of host %s: %w", name, err)
	}
	return esxi.Host(content[0].PropSet, tenants, func(refs []types.ManagedObjectReference) (all []types.ObjectContent,
		err error) {
		err = property.DefaultCollector(c.client.Client).Retrieve(ctx, refs, []string{"config"}, &all)
		return all, err
	}, lab.VSphereScheme+name)
}

// ReadHost reads a host such as vsphere://esxi01, in its own session.
func ReadHost(ctx context.Context, name string) (*topology.Host, error) {
	c, err := Open(ctx, "")
	if err != nil {
		return nil, err
	}
	h, err := c.Read(ctx, strings.TrimPrefix(name, lab.VSphereScheme))
	return h, errors.Join(err, c.Close(context.WithoutCancel(ctx)))
}

// place returns a folder of virtual machines, and a finder for other objects. datacenter may be "" if there is only
// one; folder "" means the data centre's.
func (c *Conn) place(ctx context.Context, datacenter, folder string) (*find.Finder, *object.Folder, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := path.Join("/", datacenter, folder)
	if have, ok := c.places[key]; ok {
		return have.finder, have.folder, nil
	}
	f := find.NewFinder(c.client.Client)
	dc, err := f.DatacenterOrDefault(ctx, datacenter)
	if err != nil {
		return nil, nil, err
	}
	at, err := f.SetDatacenter(dc).DefaultFolder(ctx)
	if err == nil && folder != "" {
		at, err = f.Folder(ctx, path.Join(at.InventoryPath, folder))
	}
	if err != nil {
		return nil, nil, err
	}
	c.places[key] = place{f, at}
	return f, at, nil
}

type place struct {
	finder *find.Finder
	folder *object.Folder
}
