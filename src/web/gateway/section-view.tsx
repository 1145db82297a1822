import { type ReadonlySignal, useSignal, useSignalEffect } from '@preact/signals';
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { shared } from '../strings.ts';
import { Button, ButtonLink } from '../ui/button.tsx';
import { TextField } from '../ui/field.tsx';
import { PlusIcon } from '../ui/icons.tsx';
import { EmptyState, ProblemNotice } from '../ui/notice.tsx';
import { linkTo, route } from '../ui/router.ts';
import { CreateDialog } from './create-dialog.tsx';
import { PagedList } from './paged-list.ts';
import type { Item, Section } from './section.ts';
import { gateway } from './strings.ts';

const text = gateway.list;
/** A search reads so many items at most. */
const MOST = 10_000;
/** Rows in the document; more are shown on demand. */
const ROWS = 100;
const NEW = 'new';

/** A list with its search, its form and its dialogs. Give it the section's name as `key`. */
export function SectionView<T extends Item>({
  section,
  stamp,
}: {
  section: Section<T>;
  /** Changes when agents or endpoints come or go. */
  stamp: ReadonlySignal<string>;
}): JSX.Element {
  const [list] = useState(() => new PagedList<T>(section.path, section.listKey));
  const filter = useSignal('');
  const rows = useSignal(ROWS);
  useSignalEffect(() => {
    // The first page, and later whatever was loaded.
    if (section.isLive) stamp.value;
    void list.reload();
  });
  const close = () => window.location.replace(linkTo(section.name));
  const done = () => {
    close();
    void list.reload();
  };
  const items = list.items.value;
  const wanted = filter.value.trim().toLowerCase();
  const matching = items.filter((item) => section.searchText(item).toLowerCase().includes(wanted));
  const isLoading = list.state.value === 'loading';
  const title = gateway.sections[section.name];
  const isEmpty = items.length === 0 && list.state.value === 'complete' && list.problem.value === null;
  const hasMore = matching.length > rows.value || list.state.value === 'more';
  return (
    <section aria-labelledby="section">
      <div class="section-head">
        <h2 id="section">{title}</h2>
        {section.create && <NewLink section={section} />}
      </div>
      {!isEmpty && (
        <TextField
          label={text.filter(title)}
          hiddenLabel
          type="search"
          placeholder={text.filter(title)}
          value={filter.value}
          onInput={(value) => {
            filter.value = value;
            rows.value = ROWS;
            if (value.trim() !== '') void list.loadUpTo(MOST);
          }}
        />
      )}
      <div role="status">
        {isLoading && items.length === 0 && <p class="with-spinner">{shared.loading}</p>}
        {isLoading && wanted !== '' && <p class="with-spinner">{text.searching(matching.length)}</p>}
        {!isLoading && !isEmpty && matching.length === 0 && wanted !== '' && (
          <p class="hint">{text.noMatch(filter.value)}</p>
        )}
      </div>
      {list.problem.value && (
        <>
          <ProblemNotice title={text.failed} problem={list.problem.value} />
          <Button onClick={() => void list.reload()}>{text.again}</Button>
        </>
      )}
      {isEmpty && (
        <EmptyState title={section.empty.title}>
          <p>{section.empty.text}</p>
          {section.empty.command !== undefined && <pre>{section.empty.command}</pre>}
        </EmptyState>
      )}
      {matching.length > 0 && <Table section={section} items={matching.slice(0, rows.value)} title={title} />}
      {hasMore && !isLoading && (
        <Button
          onClick={() => {
            rows.value += ROWS;
            if (matching.length < rows.value) void list.loadMore();
          }}
        >
          {text.more}
        </Button>
      )}
      <Dialogs section={section} items={items} close={close} done={done} />
    </section>
  );
}

function NewLink<T extends Item>({ section }: { section: Section<T> }): JSX.Element {
  return (
    <ButtonLink kind="primary" href={linkTo(section.name, NEW)}>
      <PlusIcon />
      {section.create?.label}
    </ButtonLink>
  );
}

interface TableProps<T extends Item> {
  section: Section<T>;
  items: readonly T[];
  title: string;
}

/** On a phone, each row becomes a card whose cells name their column. */
function Table<T extends Item>({ section, items, title }: TableProps<T>): JSX.Element {
  const { columns } = section;
  const hasActions = items.some((item) => section.actions(item).length > 0);
  return (
    <div class="card table">
      <table aria-label={title}>
        <thead>
          <tr>
            {columns.map(({ head }) => (
              <th key={head} scope="col">
                {head}
              </th>
            ))}
            {hasActions && (
              <th scope="col">
                <span class="visually-hidden">{text.actions}</span>
              </th>
            )}
          </tr>
        </thead>
        <tbody>
          {items.map((item) => (
            <tr key={item.id}>
              {columns.map(({ head, cell }) => (
                <td key={head} data-label={head}>
                  <div>{cell(item)}</div>
                </td>
              ))}
              {hasActions && (
                <td class="row-actions">
                  {section.actions(item).map(({ name, label }) => (
                    <ButtonLink key={name} kind="quiet" href={linkTo(section.name, item.id, name)}>
                      {label}
                    </ButtonLink>
                  ))}
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface DialogsProps<T extends Item> {
  section: Section<T>;
  items: readonly T[];
  close: () => void;
  done: () => void;
}

function Dialogs<T extends Item>({ section, items, close, done }: DialogsProps<T>): JSX.Element | null {
  const [, id, name] = route.value;
  if (id === NEW && section.create) {
    const opens = section.afterCreate;
    return (
      <CreateDialog
        path={section.path}
        form={section.create}
        close={close}
        done={(created) => {
          done();
          if (opens !== undefined) window.location.replace(linkTo(section.name, created, opens));
        }}
      />
    );
  }
  const item = items.find((each) => each.id === id);
  const action = item && section.actions(item).find((each) => each.name === name);
  return action?.dialog(close, done) ?? null;
}
