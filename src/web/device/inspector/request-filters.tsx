import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { SelectField, TextField } from '../../ui/field.tsx';
import type { RequestFilter } from './request-filter.ts';
import { inspector } from './strings.ts';

const text = inspector.filters;
const STATUSES = Object.entries(text.statuses).map(([value, label]) => ({ value, label }));
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
const DURATIONS = Object.entries(text.durations).map(([value, label]) => ({ value, label }));

/** Narrows the list by path, method, status and duration. */
export function RequestFilters({ filter }: { filter: Signal<RequestFilter> }): JSX.Element {
  const { method, path, status, minDurationMs } = filter.value;
  const change = (part: Partial<RequestFilter>) => {
    filter.value = { ...filter.value, ...part };
  };
  return (
    <fieldset class="filters">
      <legend class="visually-hidden">{text.label}</legend>
      <TextField
        label={text.path}
        hiddenLabel
        placeholder={text.path}
        type="search"
        value={path}
        onInput={(value) => change({ path: value })}
      />
      <SelectField
        label={text.method}
        hiddenLabel
        value={method}
        options={withValue([{ value: '', label: text.anyMethod }, ...METHODS.map(own)], method)}
        onChange={(value) => change({ method: value })}
      />
      <SelectField
        label={text.status}
        hiddenLabel
        value={status}
        options={withValue(STATUSES, status)}
        onChange={(value) => change({ status: value })}
      />
      <SelectField
        label={text.duration}
        hiddenLabel
        value={String(minDurationMs)}
        options={withValue(DURATIONS, String(minDurationMs))}
        onChange={(value) => change({ minDurationMs: Number(value) })}
      />
    </fieldset>
  );
}

interface FilterOption {
  value: string;
  label: string;
}

const own = (value: string): FilterOption => ({ value, label: value });

/** The address may have a value that the menu has not. */
function withValue(options: readonly FilterOption[], chosen: string): readonly FilterOption[] {
  return options.some(({ value }) => value === chosen) ? options : [...options, own(chosen)];
}
