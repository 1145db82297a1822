import type { ComponentChildren, JSX } from 'preact';
import { keepInAddress, linkTo, queryInAddress } from '../ui/router.ts';
import type { BulkKind } from './bulk.tsx';
import type { ItemForm } from './form.tsx';
import type { Watched } from './session.ts';

/** The title of the browser's tab. */
export const pageTitle = (view: string): string => `${view} – ${window.location.hostname.replace(/^api\./, '')}`;

export interface Item {
  id: string;
}

export interface ListColumn<T> {
  head: string;
  cell: (item: T) => ComponentChildren;
  /** What the API calls its order; left out: the list is not sorted by it. */
  sort?: string;
}

/** What one can do with an item; each has a dialog. */
export interface Action {
  /** Its part of the address. */
  name: string;
  label: string;
  /** Whether its button is beside what it changes, not at the head of the item's page. */
  isPlaced?: boolean;
  /** @param done call it when something was changed */
  dialog: (close: () => void, done: () => void | Promise<void>) => JSX.Element;
}

/** What the API limits a list to. */
export interface Filter {
  /** The parameter of the query. */
  name: string;
  label: string;
  /** One of these, and at first all items; left out: any text. */
  options?: readonly { value: string; label: string }[];
  /** What the parameter is for a value; left out: the value. */
  parameter?: (value: string) => string;
}

/** A member of an item, as its page shows it. */
export interface Fact {
  label: string;
  value: ComponentChildren;
}

/** A resource of the management API: its list, and the page of each item. */
export interface Section<T extends Item = Item> extends Watched {
  /** Its part of the address. */
  name: string;
  title: string;
  /** What the ids of its items begin with. */
  idPrefix: string;
  path: string;
  listKey: string;
  /** What people call an item. */
  nameOf: (item: T) => string;
  /** The first one leads to the item's page. */
  columns: readonly ListColumn<T>[];
  /** What a search finds it by that the page does itself; left out: the API does. */
  searchTexts?: (item: T) => readonly (string | number | null | undefined)[];
  /**
   * Further ids with which an item changes. Left out: all items are loaded again after a change
   * of anything else that the section watches.
   */
  changesWith?: (item: T) => readonly (string | null | undefined)[];
  filters?: readonly Filter[];
  /** Whether the API searches, by its parameter `search`; else the page searches what it has loaded. */
  isSearched: boolean;
  /** What the API sorts by. */
  sorts: readonly string[];
  /** What can be done with many of them at once, and what they are called. */
  bulk?: { choices: readonly BulkKind[]; noun: readonly [one: string, many: string] };
  /** Where the list is a file to save. */
  exportPath?: string;
  empty: { title: string; text: string; command?: string };
  create?: ItemForm;
  /** Other forms for a new item, by their parts of the address. */
  createOther?: Readonly<Record<string, ItemForm>>;
  facts: (item: T) => readonly Fact[];
  /** The link to its history; null: it has none. Left out: no item has one. */
  historyOf?: (item: T) => string | null;
  /** What else the item's page shows. Call `changed` after a change. */
  more?: (item: T, changed: () => void) => JSX.Element | null;
  actions: (item: T) => readonly Action[];
}

/** The link to what a search and filters find in a list. */
export function searchLink(section: string, text: string, limits: FilterValues = {}): string {
  const query = new URLSearchParams({ ...(text !== '' && { search: text }), ...limits });
  return linkTo(section) + (query.size === 0 ? '' : `?${query}`);
}

/** The search in the address. */
export function searchInAddress(): string {
  return queryInAddress().get('search') ?? '';
}

/** The values of filters, by their names; empty: all items. The order is among them. */
export type FilterValues = Readonly<Record<string, string>>;

/** The parameter of an order, after a hyphen if it is reversed. */
export const SORT = 'sort';

/** The filters of a section in the address, and its order. */
export function filtersInAddress({ filters = [] }: Pick<Section, 'filters'>): FilterValues {
  const query = queryInAddress();
  return Object.fromEntries([...filters.map(({ name }) => name), SORT].map((name) => [name, query.get(name) ?? '']));
}

/** Puts a search and filters into the address, so that they are there again after a reload. */
export function keepSearch(text: string, filters: FilterValues): void {
  const filled = Object.entries({ search: text, ...filters }).filter(([, value]) => value !== '');
  keepInAddress(new URLSearchParams(filled));
}

/** The query of a list that is sorted, limited by filters, and by a search if the API searches. */
export function filterQuery(
  { filters = [], isSearched, sorts }: Pick<Section, 'filters' | 'isSearched' | 'sorts'>,
  values: FilterValues,
  search: string,
): URLSearchParams {
  const query = new URLSearchParams();
  if (isSearched && search.trim() !== '') query.set('search', search.trim());
  for (const { name, parameter } of filters) {
    const value = values[name]?.trim() ?? '';
    if (value !== '') query.set(name, parameter?.(value) ?? value);
  }
  const sort = values[SORT] ?? '';
  if (sorts.includes(sort.replace(/^-/, ''))) query.set(SORT, sort);
  return query;
}
