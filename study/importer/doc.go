// Package importer converts results that others measured into studies. A value that is zero, negative or not a number
// is a failure with a reason, and a file that cannot be parsed is reported with the line.
//
// It only reads its sources; study/conduct stores the result.
package importer
