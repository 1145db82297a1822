import { type ReadonlySignal, type Signal, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { besidePage } from '../ui/api.ts';
import { Button, ButtonLink } from '../ui/button.tsx';
import { focusHeading } from '../ui/dialog.tsx';
import { SelectField, TextField } from '../ui/field.tsx';
import { PlusIcon } from '../ui/icons.tsx';
import { EmptyState, ProblemNotice } from '../ui/notice.tsx';
import { linkTo, queryInAddress, route, useTitle } from '../ui/router.ts';
import { FormDialog } from './action-dialogs.tsx';
import { BulkBar, type Chosen, NOTHING_CHOSEN } from './bulk.tsx';
import type { ItemForm } from './form.tsx';
import { ItemTable } from './item-table.tsx';
import { ItemView } from './item-view.tsx';
import { PagedList } from './paged-list.ts';
import {
  type FilterValues,
  filterQuery,
  filtersInAddress,
  type Item,
  keepSearch,
  pageTitle,
  type Section,
  SORT,
  searchInAddress,
} from './section.ts';
import type { News } from './session.ts';

/** A search reads so many items at most. */
const MOST = 20_000;
/** Rows in the document; more are shown on demand. */
const ROWS = 100;
const NEW = 'new';

export interface SectionViewProps<T extends Item> {
  section: Section<T>;
  news: ReadonlySignal<News>;
}

/** A resource: its list with search and form, or the page of one item. */
export function SectionView<T extends Item>({ section, news }: SectionViewProps<T>): JSX.Element {
  const [list] = useState(
    () => new PagedList<T>(section, filterQuery(section, filtersInAddress(section), searchInAddress())),
  );
  const [, id] = route.value;
  useSignalEffect(() => {
    // All that was loaded at first, then what changes.
    void list.update(news.value);
  });
  const forms: Readonly<Record<string, ItemForm>> = {
    ...(section.create && { [NEW]: section.create }),
    ...section.createOther,
  };
  const form = id === undefined ? undefined : forms[id];
  const isItem = id !== undefined && id !== NEW && form === undefined;
  const wasItem = useRef(false);
  useEffect(() => {
    if (wasItem.current && !isItem) focusHeading(document.getElementById('section'));
    wasItem.current = isItem;
  }, [isItem]);
  useTitle(isItem ? null : pageTitle(section.title));
  return (
    <>
      {/* Stays, so that the search and the place in the list are there again after a look at one item. */}
      <section aria-labelledby="section" hidden={isItem}>
        <List section={section} list={list} />
        {form && (
          <FormDialog
            method="POST"
            path={section.path}
            form={form}
            close={() => window.location.replace(linkTo(section.name))}
            done={(answer) => {
              void list.reload();
              window.location.replace(linkTo(section.name, String(answer.id)));
            }}
          />
        )}
      </section>
      {isItem && (
        <ItemView
          key={id}
          section={section}
          id={id}
          news={news}
          onChange={(exists) => {
            if (!exists) list.forget(id);
            void list.reload();
          }}
        />
      )}
    </>
  );
}

function List<T extends Item>({ section, list }: { section: Section<T>; list: PagedList<T> }): JSX.Element {
  const filter = useSignal(searchInAddress());
  const limits = useSignal<FilterValues>(filtersInAddress(section));
  const rows = useSignal(ROWS);
  const chosen = useSignal<Chosen>(NOTHING_CHOSEN);
  /** Shows what a search, filters and an order choose, and keeps that in the address. */
  const choose = (search: string, values: FilterValues) => {
    filter.value = search;
    limits.value = values;
    rows.value = ROWS;
    chosen.value = NOTHING_CHOSEN;
    keepSearch(search, values);
    const query = filterQuery(section, values, search);
    if (`${query}` !== asked.current) void list.limitTo(query);
    asked.current = `${query}`;
  };
  const asked = useRef(`${filterQuery(section, limits.value, filter.value)}`);
  useAddress(section, (isBack) => {
    if (isBack) keepSearch(filter.value, limits.value);
    else choose(searchInAddress(), filtersInAddress(section));
  });
  const [texts] = useState(() => new WeakMap<T, string>());
  const items = list.items.value;
  const wanted = filter.value.trim().toLowerCase();
  const matching =
    wanted === '' || section.isSearched
      ? items
      : items.filter((item) => searchText(section, texts, item).includes(wanted));
  useSignalEffect(() => {
    if (filter.value.trim() !== '' && !section.isSearched) void list.loadUpTo(MOST);
  });
  const isLoading = list.state.value === 'loading';
  const title = section.title;
  const searchLabel = `Search ${title.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase())}`;
  const { [SORT]: sort = '', ...others } = limits.value;
  const limit = filterQuery(section, others, filter.value);
  const isLimited = limit.size > 0;
  const shown = matching.slice(0, rows.value);
  const isEmpty = items.length === 0 && !isLimited && list.state.value === 'complete' && list.problem.value === null;
  /** The search has not read everything. */
  const isCut = wanted !== '' && list.state.value === 'more' && items.length >= MOST && list.problem.value === null;
  const hasMore = matching.length > rows.value || list.state.value === 'more';
  return (
    <>
      <div class="section-head">
        <h2 id="section">{title}</h2>
        {section.create && (
          <ButtonLink kind="primary" href={linkTo(section.name, NEW)}>
            <PlusIcon />
            {section.create.label}
          </ButtonLink>
        )}
        {Object.entries(section.createOther ?? {}).map(([name, { label }]) => (
          <ButtonLink key={name} href={linkTo(section.name, name)}>
            {label}
          </ButtonLink>
        ))}
        {section.exportPath && (
          <ButtonLink
            href={besidePage(`${section.exportPath}?${filterQuery(section, limits.value, filter.value)}`)}
            download
          >
            Export JSON lines
          </ButtonLink>
        )}
      </div>
      {(section.filters || section.sorts.length > 0) && !isEmpty && (
        <Filters section={section} values={limits.value} onChange={(values) => choose(filter.value, values)} />
      )}
      {!isEmpty && (
        <TextField
          label={searchLabel}
          hiddenLabel
          type="search"
          placeholder={searchLabel}
          value={filter.value}
          onInput={(value) => choose(value, limits.value)}
        />
      )}
      <div role="status">
        {isLoading && items.length === 0 && <p class="with-spinner">Loading…</p>}
        {isLoading && wanted !== '' && <p class="with-spinner">Searching… {matching.length} so far</p>}
        {!isLoading && !isEmpty && !isCut && matching.length === 0 && (wanted !== '' || isLimited) && (
          <p class="hint">Nothing matches{wanted !== '' && ` “${filter.value}”`}.</p>
        )}
        {isCut && (
          <p class="hint">
            Only the newest {items.length.toLocaleString('en')} were searched, and there are more:{' '}
            {section.filters ? 'limit the list above, or continue.' : 'continue to search older ones.'}
          </p>
        )}
      </div>
      {list.problem.value && (
        <>
          <ProblemNotice title="The list could not be loaded" problem={list.problem.value} />
          <Button onClick={() => void list.reload()}>Try again</Button>
        </>
      )}
      {isEmpty && (
        <EmptyState title={section.empty.title}>
          <p>{section.empty.text}</p>
          {section.empty.command !== undefined && <pre>{section.empty.command}</pre>}
        </EmptyState>
      )}
      {section.bulk && matching.length > 0 && (
        <BulkBar {...section.bulk} chosen={chosen} shown={shown.map(({ id }) => id)} filter={limit} />
      )}
      {matching.length > 0 && (
        <ItemTable
          title={title}
          columns={section.columns}
          items={shown}
          {...(section.bulk && { choice: choiceOf(chosen, section, shown) })}
          section={section.name}
          order={{ sort, onSort: (wanted) => choose(filter.value, { ...limits.value, [SORT]: wanted }) }}
        />
      )}
      {hasMore && !isLoading && (
        <Button
          onClick={() => {
            rows.value += ROWS;
            if (isCut && matching.length < rows.value) void list.loadUpTo(items.length + MOST);
            else if (matching.length < rows.value) void list.loadMore();
          }}
        >
          {isCut && matching.length <= rows.value ? 'Search older ones' : 'Show more'}
        </Button>
      )}
    </>
  );
}

/**
 * Calls the listener when the address of a list has become another one, other than by the list itself: a link, or the browser's
 * back button. With true, one is back from an item, by a link that does not name the view.
 */
function useAddress(section: Pick<Section, 'name'>, listener: (isBack: boolean) => void): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    let [, item] = route.peek();
    const changed = () => {
      const [name, next] = route.peek();
      const isBack = item !== undefined && queryInAddress().size === 0;
      item = next;
      if (name === section.name && next === undefined) latest.current(isBack);
    };
    return route.subscribe(() => queueMicrotask(changed));
  }, [section.name]);
}

/** What the checkboxes of rows say and do. A row that is left out of all that match leaves those shown. */
function choiceOf<T extends Item>(chosen: Signal<Chosen>, { nameOf }: Pick<Section<T>, 'nameOf'>, shown: readonly T[]) {
  const { value } = chosen;
  return {
    nameOf,
    has: ({ id }: T) => 'filter' in value || value.ids.has(id),
    toggle({ id }: T) {
      const ids = new Set('ids' in value ? value.ids : shown.map((item) => item.id));
      if (!ids.delete(id)) ids.add(id);
      chosen.value = { ids };
    },
  };
}

interface FiltersProps<T extends Item> {
  section: Pick<Section<T>, 'filters' | 'columns'>;
  values: FilterValues;
  onChange: (values: FilterValues) => void;
}

/** What the API limits the list to, and sorts it by. */
function Filters<T extends Item>({ section, values, onChange }: FiltersProps<T>): JSX.Element {
  const { filters = [], columns } = section;
  const set = (name: string) => (value: string) => onChange({ ...values, [name]: value });
  const orders = columns.flatMap(({ head, sort }) =>
    sort === undefined
      ? []
      : [
          { value: sort, label: `${head}, ascending` },
          { value: `-${sort}`, label: `${head}, descending` },
        ],
  );
  return (
    <div class="filters">
      {filters.map(({ name, label, options }) => {
        const field = { label, value: values[name] ?? '' };
        return options ? (
          <SelectField key={name} {...field} options={[{ value: '', label: 'All' }, ...options]} onChange={set(name)} />
        ) : (
          <TextField key={name} {...field} onInput={set(name)} />
        );
      })}
      {orders.length > 0 && (
        <SelectField
          label="Sorted by"
          value={values[SORT] ?? ''}
          options={[{ value: '', label: 'Newest first' }, ...orders]}
          onChange={set(SORT)}
        />
      )}
    </div>
  );
}

/** Kept for each item, as a search reads all of them with each key. */
function searchText<T extends Item>(section: Section<T>, texts: WeakMap<T, string>, item: T): string {
  const known = texts.get(item) ?? (section.searchTexts?.(item) ?? []).join(' ').toLowerCase();
  texts.set(item, known);
  return known;
}
