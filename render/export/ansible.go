package export

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"github.com/rackless/rackless/render"
)

// inventory is a group of Ansible with its hosts.
type inventory struct {
	Hosts map[string]inventoryHost `json:"hosts"`
	Vars  map[string]any           `json:"vars"`
}

type inventoryHost struct {
	Host string          `json:"ansible_host"`
	GPUs int             `json:"lab_gpus,omitempty"`
	NICs []inventoryPort `json:"lab_nics,omitempty"`
}

type inventoryPort struct {
	Name    string `json:"name"`
	MAC     string `json:"mac"`
	Address string `json:"address"`
}

// runDir is the directory of running labs, as the user who runs Ansible has it: rackless's own rule.
const runDir = "{{ lookup('env', 'RACKLESS_RUN') or (lookup('env', 'XDG_RUNTIME_DIR') + '/rackless' if " +
	"lookup('pipe', 'id -u') != '0' and lookup('env', 'XDG_RUNTIME_DIR') else '/run/rackless') }}"

// Ansible returns an inventory with a group of the lab's name. Full nodes of an emulated lab are reached as rackless
// ssh does, all others by their first address on the fabric.
func Ansible(in render.Input) ([]render.Artifact, error) {
	l := in.Lab
	if l == nil {
		return nil, errors.New("export ansible: no lab")
	}
	g := inventory{Hosts: map[string]inventoryHost{}, Vars: map[string]any{"ansible_user": "root",
		"lab_mtu": l.Fabric.MTU}}
	full := !l.Driver.Placed()
	for _, n := range l.Nodes {
		full = full && n.Full()
	}
	for _, n := range l.Nodes {
		h := inventoryHost{Host: n.Name, GPUs: n.GPUs}
		for i, p := range n.NICs {
			if i == 0 && !full {
				h.Host = p.Addr.Addr().String()
			}
			h.NICs = append(h.NICs, inventoryPort{Name: p.Name, MAC: p.MAC, Address: p.Addr.String()})
		}
		g.Hosts[n.Name] = h
	}
	about := "An inventory of the lab's nodes. They are reached by their first address on the fabric, from a " +
		"machine that is on it; give ansible_host another value for a management network."
	if full {
		about = "An inventory of the lab's nodes. They are reached through rackless ssh, without a network: on the " +
			"machine and by the user that the lab runs on."
		dir := "{{ rackless_run }}/" + l.Name
		g.Vars["rackless_run"] = runDir
		g.Vars["ansible_ssh_private_key_file"] = dir + "/id_ed25519"
		g.Vars["ansible_ssh_common_args"] = fmt.Sprintf("-o ProxyCommand='rackless ssh --stdio %s/%%h' -o "+
			"UserKnownHostsFile=%s/known_hosts -o KexAlgorithms=^curve25519-sha256", l.Name, dir)
	}
	data, err := document(head(in, about), map[string]inventory{l.Name: g}, nil)
	if err != nil {
		return nil, fmt.Errorf("export ansible: %w", err)
	}
	return []render.Artifact{text("inventory.yaml", string(data))}, nil
}

//go:embed hosts.yaml.tmpl
var hostsText string

// hosts is a playbook. Its own expressions stand in braces, so those of the template do not.
var hosts = template.Must(template.New("hosts.yaml").Delims("<<", ">>").Parse(hostsText))

// AnsibleHosts returns a playbook that prepares a group of hosts for the lab, by the plan of each, and verifies them.
func AnsibleHosts(in render.Input) ([]render.Artifact, error) {
	if in.Lab == nil {
		return nil, errors.New("export ansible-hosts: no lab")
	}
	var b bytes.Buffer
	err := hosts.Execute(&b, map[string]string{"Name": in.Lab.Name,
		"Lab":  strings.TrimSuffix(indented(6, string(in.Lab.YAML())), "\n"),
		"Head": head(in, "A playbook of Ansible. Its inventory is of hosts, not of the lab's nodes.")})
	if err != nil {
		return nil, fmt.Errorf("export ansible-hosts: %w", err)
	}
	return []render.Artifact{text("prepare.yaml", b.String())}, nil
}
