package main

import (
	"fmt"
	"strings"
)

// Header is one header of a record.
type Header struct{ Name, Value string }

// Record is what a driver sends under a number; every client sends the same.
type Record struct {
	Key     *string
	Value   *string
	Headers []Header
	TimeMS  int64
}

// RecordOf makes the record of a number. Mixed ones lack some keys and values, and have some headers.
func RecordOf(spec Spec, number int64) Record {
	value := fmt.Sprintf("%s %d ", spec.Producer, number)
	value += strings.Repeat(".", max(0, spec.Size-len(value)))
	key := fmt.Sprintf("key %d", number)
	if spec.Keys > 0 {
		key = fmt.Sprintf("key %d", number%spec.Keys)
	}
	record := Record{Key: &key, Value: &value}
	if spec.TimeMS > 0 {
		record.TimeMS = spec.TimeMS + number
	}
	if !spec.Mixed {
		return record
	}
	if number%3 == 0 {
		record.Key = nil
	}
	if number%5 == 0 && number%3 != 0 { // some clients send no record without both
		record.Value = nil
	}
	if number%2 == 1 {
		record.Headers = []Header{{"first", "1"}, {"second", "2"}}
	}
	return record
}
