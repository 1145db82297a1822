import type { Filter } from './section.ts';

export const SITE_FILTER: Filter = { name: 'site', label: 'Site' };
export const LABEL_FILTER: Filter = { name: 'label', label: 'Label (name=value)' };
export const VERSION_FILTER: Filter = { name: 'version', label: 'Version of the agent' };

/** @param states what people call each */
export function stateChoice(states: Readonly<Record<string, string>>): Filter {
  return {
    name: 'state',
    label: 'State',
    options: Object.entries(states).map(([value, label]) => ({ value, label })),
  };
}
