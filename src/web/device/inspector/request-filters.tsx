import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { SelectField, TextField } from '../../ui/field.tsx';
import type { RequestFilter } from './traffic-model.ts';

const STATUSES = [
  { value: 'any', label: 'Any status' },
  { value: '2xx', label: '2xx' },
  { value: '3xx', label: '3xx' },
  { value: '4xx', label: '4xx' },
  { value: '5xx', label: '5xx' },
  { value: 'none', label: 'No response' },
];
const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'];
/** In milliseconds. */
const DURATIONS = [
  { value: '0', label: 'Any duration' },
  { value: '100', label: '100 ms or more' },
  { value: '500', label: '500 ms or more' },
  { value: '1000', label: '1 s or more' },
  { value: '5000', label: '5 s or more' },
];

/** Narrows the list by path, method, status and duration. */
export function RequestFilters({ filter }: { filter: Signal<RequestFilter> }): JSX.Element {
  const { method, path, status, minDurationMs } = filter.value;
  const change = (part: Partial<RequestFilter>) => {
    filter.value = { ...filter.value, ...part };
  };
  return (
    <fieldset class="filters">
      <legend class="visually-hidden">Filters</legend>
      <TextField
        label="Path contains"
        hiddenLabel
        placeholder="Path contains"
        type="search"
        value={path}
        onInput={(value) => change({ path: value })}
      />
      <SelectField
        label="Method"
        hiddenLabel
        value={method}
        options={withValue([{ value: '', label: 'Any method' }, ...METHODS.map(own)], method)}
        onChange={(value) => change({ method: value })}
      />
      <SelectField
        label="Status"
        hiddenLabel
        value={status}
        options={withValue(STATUSES, status)}
        onChange={(value) => change({ status: value })}
      />
      <SelectField
        label="Duration"
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
