package planner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/rackless/rackless/internal/strictyaml"
	"github.com/rackless/rackless/internal/userfile"
	"github.com/rackless/rackless/lab"
	"github.com/rackless/rackless/machine/inspect"
	"github.com/rackless/rackless/machine/topology"
	"github.com/rackless/rackless/plan"
	"github.com/rackless/rackless/plan/build"
)

// Local is the machine that runs rackless.
const Local = "local"

// Hosts reads hosts.
type Hosts struct {
	Stdin io.Reader // for "-"
	// Schemes read hosts that are not files, by the beginning of their names, such as vsphere://.
	Schemes map[string]func(ctx context.Context, name string) (*topology.Host, error)
}

// Read reads this machine for Local, standard input for "-", else a scheme or a file.
func (s Hosts) Read(ctx context.Context, host string) (h *topology.Host, name string, err error) {
	switch host {
	case Local:
		h, err = inspect.Read(ctx, inspect.Live())
		return h, "this machine", err
	case "-":
		h, err = inspect.ReadStream(ctx, s.Stdin, "standard input")
		return h, "standard input", err
	}
	for scheme, read := range s.Schemes {
		if strings.HasPrefix(host, scheme) {
			h, err = read(ctx, host)
			return h, host, err
		}
	}
	h, err = inspect.ReadFile(ctx, host)
	return h, host, err
}

// PlanPart is the name of the plan in a bundle.
const PlanPart = "plan.json"

// ReadPlan reads the output of plan -o json, or the plan in a bundle. Its errors are *RequestError.
func ReadPlan(path string) (*plan.Plan, error) {
	data, err := inspect.BundlePart(path, PlanPart)
	if data == nil && err == nil {
		data, err = userfile.Read(path, userfile.Document)
	}
	if err != nil {
		return nil, request(err)
	}
	p, err := plan.Decode(data)
	if err != nil {
		err = fmt.Errorf("%s: not a plan as \"rackless plan -o json\" prints it: %s%w", path, jsonLine(data, err), err)
	} else if p.Schema != plan.Schema {
		err = fmt.Errorf("%s: schema is %q; want %q, as \"rackless plan -o json\" prints it", path, p.Schema,
			plan.Schema)
	}
	return p, request(err)
}

func readModel(path string) (*build.Model, error) {
	if path == "" {
		return nil, nil
	}
	data, err := userfile.Read(path, userfile.Text)
	if err != nil {
		return nil, request(err)
	}
	m, err := build.ParseModel(path, data)
	return m, request(err)
}

// readTenants reads "rackless inspect -o json". It returns nil if the lab file selects the host's tenants.
func readTenants(from string) ([]topology.Tenant, error) {
	if from == lab.TenantsRead || from == lab.TenantsIgnore || from == "" {
		return nil, nil
	}
	data, err := userfile.Read(from, userfile.Data)
	if err != nil {
		return nil, request(err)
	}
	tenants, err := parseTenants(data)
	if err != nil {
		err = fmt.Errorf("%s: not a list of VMs as in \"rackless inspect -o json | jq .tenants\": %w", from, err)
	}
	return tenants, request(err)
}

// parseTenants returns a non-nil slice for an empty list.
func parseTenants(data []byte) ([]topology.Tenant, error) {
	type plain topology.Tenant // Tenant's own decoding accepts unknown keys and reports no lines
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(new([]plain))
	var tenants []topology.Tenant
	if err == nil {
		err = json.Unmarshal(data, &tenants)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty: want [] for none")
	case err != nil:
		return nil, fmt.Errorf("%s%w", jsonLine(data, err), err)
	case tenants == nil:
		return nil, errors.New("null: want [] for none")
	}
	return tenants, nil
}

// jsonLine returns "line 5: ", or "" if the error has no position.
func jsonLine(data []byte, err error) string {
	var offset int64
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = e.Offset
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		offset = e.Offset
	}
	if offset <= 0 || offset > int64(len(data)) {
		return ""
	}
	return fmt.Sprintf("line %d: ", 1+bytes.Count(data[:offset-1], []byte("\n")))
}

// HostOf returns the host of vSphere that the lab names, if host is Local, for [Hosts.Read].
func HostOf(l *lab.Lab, host string) string {
	if host == Local && l.VSphere != nil {
		return lab.VSphereScheme + l.VSphere.Host
	}
	return host
}

// ReadLab suggests a lab file if the path is misspelt, or names the type of a file of another kind. All errors are
// *RequestError.
func ReadLab(path string) (*lab.Lab, error) {
	text, err := userfile.Read(path, userfile.Text)
	if err != nil {
		info, statErr := os.Stat(path)
		if isDir := statErr == nil && info.IsDir(); isDir || errors.Is(statErr, os.ErrNotExist) {
			err = fmt.Errorf("%s: %s", path, instead(path, isDir))
		}
		return nil, request(err)
	}
	l, err := lab.Parse(path, text)
	if err != nil {
		return nil, request(inspect.Misplaced(path, text, "a lab file", err))
	}
	return l, nil
}

func instead(path string, isDir bool) string {
	text, look := "no such lab file", []string{filepath.Dir(path), "examples"}
	if isDir {
		text, look = "a directory and no lab file", []string{path}
	}
	return text + "; " + cmp.Or(strictyaml.Others(path, look, func(dir string) []string {
		files, _ := lab.Files(os.DirFS(dir)) // no suggestions from an unreadable directory
		return files
	}), "make one with: rackless init")
}

// LabName returns the argument, or the name in that lab file. It becomes a directory, so it must be a valid name.
// Errors are *RequestError.
func LabName(arg string) (string, error) {
	if strings.ContainsAny(arg, "./") {
		l, err := ReadLab(arg)
		if err != nil {
			return "", err
		}
		return l.Name, nil
	}
	if !isName(arg) {
		return "", request(fmt.Errorf("%q is not the name of a lab (letters a-z, digits and hyphens), and no lab file",
			arg))
	}
	return arg, nil
}

func isName(s string) bool {
	return s != "" && len(s) <= lab.MaxName && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
