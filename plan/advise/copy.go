package advise

import (
	"reflect"
)

// deepCopy uses reflection, so that new fields of a Host are copied too. A struct with unexported fields
// (topology.CPUSet, netip.Prefix) is copied as a value, because such types are immutable.
func deepCopy[T any](v T) T { return copyValue(reflect.ValueOf(&v).Elem()).Interface().(T) }

func copyValue(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if v.IsNil() {
			return v
		}
	}
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.Pointer:
		out.Set(reflect.New(v.Type().Elem()))
		out.Elem().Set(copyValue(v.Elem()))
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(copyValue(v.Index(i)))
		}
	case reflect.Map:
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), copyValue(it.Value()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				return v
			}
			out.Field(i).Set(copyValue(v.Field(i)))
		}
	}
	return out
}
