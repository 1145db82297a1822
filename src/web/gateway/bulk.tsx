import { type Signal, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import type { BulkAction, BulkActionName, BulkCounted } from '../../management/resources/bulk-action.ts';
import type { ApiProblem } from '../ui/api.ts';
import { Button } from '../ui/button.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { ProblemNotice } from '../ui/notice.tsx';
import { linkTo } from '../ui/router.ts';
import { attempt, useSubmission } from '../ui/submission.ts';
import { type FormField, FormFieldInput, type FormValues } from './form.tsx';
import { api } from './session.ts';

/** Something that can be done with many items at once. */
export interface BulkKind {
  action: BulkActionName;
  label: string;
  /** What it does to each, a sentence. */
  effect: string;
  isDestructive: boolean;
  fields?: readonly FormField[];
  body?: (values: FormValues) => object;
}

/** Chosen items: by their ids, or all that the list's filters let through. */
export type Chosen = { readonly ids: ReadonlySet<string> } | { readonly filter: URLSearchParams };

export const NOTHING_CHOSEN: Chosen = { ids: new Set() };

interface BulkBarProps {
  chosen: Signal<Chosen>;
  /** Ids of the rows that are shown. */
  shown: readonly string[];
  /** What the list is limited to. */
  filter: URLSearchParams;
  choices: readonly BulkKind[];
  noun: readonly [one: string, many: string];
}

/** Says how many items are chosen, chooses all, and offers what can be done with them. */
export function BulkBar({ chosen, shown, filter, choices, noun }: BulkBarProps): JSX.Element {
  const open = useSignal<BulkKind | null>(null);
  const { value } = chosen;
  const count = 'ids' in value ? value.ids.size : null;
  const set = (next: Chosen) => {
    chosen.value = next;
  };
  return (
    <section class="bulk" aria-label={`Chosen ${noun[1]}`}>
      <p role="status">{count === null ? `All that match are chosen` : `${count} chosen`}</p>
      <Button kind="quiet" onClick={() => set({ ids: new Set(shown) })}>
        Choose all shown
      </Button>
      <Button kind="quiet" onClick={() => set({ filter })}>
        Choose all that match
      </Button>
      {count !== 0 && (
        <>
          <Button kind="quiet" onClick={() => set(NOTHING_CHOSEN)}>
            Choose none
          </Button>
          {choices.map((choice) => (
            <Button
              key={choice.action}
              onClick={() => {
                open.value = choice;
              }}
            >
              {choice.label}
            </Button>
          ))}
        </>
      )}
      {open.value && (
        <BulkDialog
          choice={open.value}
          chosen={value}
          noun={noun}
          close={() => {
            open.value = null;
          }}
        />
      )}
    </section>
  );
}

interface BulkDialogProps extends Pick<BulkBarProps, 'noun'> {
  choice: BulkKind;
  chosen: Chosen;
  close: () => void;
}

/** Counts before anything happens, and begins it. The page of the bulk action says how far it is. */
function BulkDialog({ choice, chosen, noun, close }: BulkDialogProps): JSX.Element {
  const { action, label, effect, isDestructive, fields = [], body } = choice;
  const counted = useSignal<BulkCounted | null>(null);
  const problem = useSignal<ApiProblem | null>(null);
  const values = useSignal<FormValues>({});
  const submission = useSubmission();
  const which = 'ids' in chosen ? { device_ids: [...chosen.ids] } : { filter: Object.fromEntries(chosen.filter) };
  useEffect(() => {
    void attempt(problem, async () => {
      counted.value = await api<BulkCounted>('POST', '/bulk_actions/count', { action, ...which });
    });
  }, []);
  const found = counted.value;
  const begin = async () => {
    const sent = { action, ...which, ...body?.(values.value), expected_devices: found?.devices };
    const { id } = await api<BulkAction>('POST', '/bulk_actions', sent);
    window.location.hash = linkTo('bulk-actions', id);
  };
  const wrong = submission.problem ?? problem.value;
  const many = found && `${found.devices.toLocaleString('en')} ${noun[found.devices === 1 ? 0 : 1]}`;
  return (
    <Dialog title={many ? `${label}: ${many}` : label} onClose={close}>
      <form onSubmit={submission.onSubmit(begin)} noValidate>
        {wrong && <ProblemNotice title={`${label} failed`} problem={wrong} />}
        {!found && !wrong && <p class="with-spinner">Counting…</p>}
        {found && (
          <>
            <p>{effect}</p>
            <ul>
              <li>
                {found.names.join(', ')}
                {found.devices > found.names.length &&
                  ` and ${(found.devices - found.names.length).toLocaleString('en')} more`}
              </li>
              <li>{found.online.toLocaleString('en')} of them are online.</li>
              {found.unfit > 0 && <li>For {found.unfit.toLocaleString('en')} it is not possible as they are now.</li>}
            </ul>
            {fields.map((field, place) => (
              <FormFieldInput
                key={field.name}
                field={field}
                isFirst={place === 0}
                value={values.value[field.name] ?? ''}
                onInput={(text) => {
                  values.value = { ...values.value, [field.name]: text };
                }}
              />
            ))}
          </>
        )}
        <div class="dialog-actions">
          <Button onClick={close}>Cancel</Button>
          {found && found.devices > 0 && (
            <Button kind={isDestructive ? 'danger' : 'primary'} type="submit" busy={submission.busy}>
              {`${label}: ${many}`}
            </Button>
          )}
        </div>
      </form>
    </Dialog>
  );
}
