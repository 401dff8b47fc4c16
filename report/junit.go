package report

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/rackless/rackless/finding"
)

// The form of JUnit's reports that servers of continuous integration read: a suite for each kind of
// subject, a case for each finding. What failed is a failure, what could not be read an error.
type (
	junitSuites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		junitCounts
		Suites []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name string `xml:"name,attr"`
		junitCounts
		Cases []junitCase `xml:"testcase"`
	}
	junitCounts struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
	}
	junitCase struct {
		Class   string       `xml:"classname,attr"`
		Name    string       `xml:"name,attr"`
		Failure *junitReason `xml:"failure"`
		Error   *junitReason `xml:"error"`
		Out     string       `xml:"system-out,omitempty"`
	}
	junitReason struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes findings as a JUnit report. Characters that XML cannot hold are replaced.
func JUnit(w io.Writer, all []finding.Finding) error {
	// Errors are kept apart from failures: a check that could not be read says nothing of the lab, and who reruns a job
	// on errors alone is right to do so.
	report := junitSuites{Name: "rackless verify"}
	// The order in which trouble spreads: what is wrong with the host shows again in the nodes.
	for _, name := range []string{"host", "virtual machines", "nodes"} {
		suite := junitSuite{Name: name}
		for _, f := range all {
			if suiteOf(f) == name {
				suite.add(f)
			}
		}
		if suite.Tests == 0 {
			continue
		}
		report.Tests += suite.Tests
		report.Failures += suite.Failures
		report.Errors += suite.Errors
		report.Suites = append(report.Suites, suite)
	}
	b, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, b)
	return err
}

// suiteOf returns the name of the suite that a finding is in.
func suiteOf(f finding.Finding) string {
	switch finding.GroupOf(f.ID) {
	case finding.Host:
		return "host"
	case finding.Domain:
		return "virtual machines"
	}
	return "nodes"
}

// add adds a finding as a case. What a server of continuous integration shows of a case is the message: what was found.
func (s *junitSuite) add(f finding.Finding) {
	c := junitCase{Class: f.Code + "." + f.ID, Name: f.Subject + ": " + f.Title}
	reason := &junitReason{Message: f.Have, Type: f.Code,
		Text: fmt.Sprintf("want: %s\nread: %s\nfix: %s\nmore: rackless explain %s\n", f.Want, f.Evidence, f.Fix,
			f.Code)}
	s.Tests++
	switch f.Status {
	case finding.OK:
		c.Out = f.Have
	case finding.Failed:
		s.Failures++
		c.Failure = reason
	default:
		s.Errors++
		c.Error = reason
	}
	s.Cases = append(s.Cases, c)
}
