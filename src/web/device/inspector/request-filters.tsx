import type { Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { SelectField, TextField } from '../../ui/field.tsx';
import type { RequestFilter, StatusFilter } from './request-filter.ts';
import { inspector } from './strings.ts';

const text = inspector.filters;
const STATUSES = Object.entries(text.statuses).map(([value, label]) => ({ value: value as StatusFilter, label }));
const DURATIONS = Object.entries(text.durations).map(([value, label]) => ({ value, label }));

/** Narrows the list by path, status and duration. */
export function RequestFilters({ filter }: { filter: Signal<RequestFilter> }): JSX.Element {
  const { path, status, minDurationMs } = filter.value;
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
        label={text.status}
        hiddenLabel
        value={status}
        options={STATUSES}
        onChange={(value) => change({ status: value })}
      />
      <SelectField
        label={text.duration}
        hiddenLabel
        value={String(minDurationMs)}
        options={DURATIONS}
        onChange={(value) => change({ minDurationMs: Number(value) })}
      />
    </fieldset>
  );
}
