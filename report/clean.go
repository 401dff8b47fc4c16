package report

import "slices"

// clean gives a copy of the data in which every text went through f. It is done once, before
// anything is computed, so that no output can forget a field.
func (d Data) clean(f func(string) string) Data {
	each := func(fields ...*string) {
		for _, s := range fields {
			*s = f(*s)
		}
	}
	each(&d.Lab, &d.Title, &d.Rackless, &d.HostPicture)
	d.Nodes = slices.Clone(d.Nodes)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		each(&n.Name, &n.Address, &n.MAC, &n.RDMADevice, &n.Accelerator, &n.Driver)
	}
	d.Findings = slices.Clone(d.Findings)
	for i := range d.Findings {
		c := &d.Findings[i]
		each((*string)(&c.Severity), (*string)(&c.Status), &c.ID, &c.Code, &c.Subject, &c.Title, &c.Have, &c.Want,
			&c.Evidence, &c.Consequence, &c.Fix)
	}
	d.Samples = slices.Clone(d.Samples)
	for i := range d.Samples {
		s := &d.Samples[i]
		each(&s.Run, &s.Test, &s.Client, &s.Server, &s.Metric, &s.Unit, &s.Tool, &s.Version, &s.Command,
			&s.ServerCommand, &s.Placement, &s.Accelerator, &s.Error, &s.Output)
	}
	d.Judgements = slices.Clone(d.Judgements)
	for i := range d.Judgements {
		j := &d.Judgements[i]
		each(&j.Test, &j.Client, &j.Server, &j.Metric, &j.Verdict, &j.Text)
		j.Causes = slices.Clone(j.Causes)
		for k := range j.Causes {
			each(&j.Causes[k].What, &j.Causes[k].Evidence, &j.Causes[k].Fix)
		}
	}
	d.Beside = slices.Clone(d.Beside)
	for i := range d.Beside {
		b := &d.Beside[i]
		each(&b.Test, &b.Client, &b.Server, &b.Metric, &b.Of)
	}
	d.Distributions = slices.Clone(d.Distributions)
	for i := range d.Distributions {
		x := &d.Distributions[i]
		each(&x.Test, &x.Client, &x.Server)
	}
	d.Environment = slices.Clone(d.Environment)
	for i := range d.Environment {
		each(&d.Environment[i].Key, &d.Environment[i].Value)
	}
	return d
}
