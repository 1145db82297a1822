import type { JSX } from 'preact';
import type { Secret, Vault } from '../../../management/resources/vault.ts';
import { edited, removal } from '../action-dialogs.tsx';
import { Ago, Named, optional } from '../cells.tsx';
import { type FormField, filled } from '../form.tsx';
import { ItemLink } from '../item-link.tsx';
import { OwnedItems } from '../item-table.tsx';
import { ANNOTATIONS, CREATED, DESCRIPTION_FIELD, newAnnotations, resource } from '../resource-section.tsx';
import { RESOURCES } from '../resources.ts';
import type { Action, ListColumn } from '../section.ts';
import { OWNER, OWNER_FIELD } from './credentials-section.tsx';

const NAME: FormField = {
  name: 'name',
  label: 'Name',
  hint: 'Letters, digits and _ / . - only. Policies name it.',
  kind: 'text',
  required: 'Enter a name.',
};
/** It is sent, and never shown: no answer of the API contains it. */
const VALUE: FormField = {
  name: 'value',
  label: 'Value',
  hint: 'It is kept encrypted, and never shown again.',
  kind: 'code',
  required: 'Enter the value.',
};

export const vaultsSection = resource<Vault>(RESOURCES.vaults, {
  name: 'vaults',
  title: 'Vaults',
  tables: ['vaults', 'vault_secrets'],
  nameOf: ({ name }) => name,
  columns: [
    { head: 'Vault', cell: ({ name, description }) => <Named name={name} below={description} /> },
    OWNER,
    CREATED,
  ],
  searchTexts: ({ id, name, description, metadata, owner_id }) => [id, name, description, metadata, owner_id],
  empty: {
    title: 'No vaults yet',
    text: 'A vault keeps secrets for traffic policies, which read them with secrets.get(vault, name).',
  },
  create: {
    label: 'Create vault',
    fields: [
      NAME,
      DESCRIPTION_FIELD,
      {
        ...OWNER_FIELD,
        hint: 'Optional. Whose agents may use the secrets in their policies; those of cloud endpoints and TLS edges always may.',
      },
    ],
    body: ({ name, owner_id }) => filled({ name, owner_id }),
  },
  edit: {
    label: 'Edit vault',
    fields: [NAME, ...ANNOTATIONS],
    values: ({ name }) => ({ name }),
    body: ({ name }) => filled({ name }),
  },
  facts: ({ owner_id }) => optional('Bot user', owner_id && <ItemLink id={owner_id} />),
  more: (vault) => (
    <OwnedItems<Secret>
      key={vault.id}
      title="Secrets"
      path={`/vaults/${vault.id}/secrets`}
      listKey="secrets"
      columns={COLUMNS}
      owner={vault}
      add={() => addSecret(vault)}
      actions={(secret) => [changeSecret(secret), removeSecret(secret)]}
      none={<p class="hint">No secrets yet.</p>}
    />
  ),
  remove: () => ({
    effects: ['A vault that still has secrets cannot be deleted.'],
    submit: 'Delete vault',
  }),
});

const COLUMNS: readonly ListColumn<Secret>[] = [
  { head: 'Name', cell: ({ name, description }) => <Named name={name} below={description} /> },
  { head: 'Changed', cell: ({ updated_at, created_at }): JSX.Element => <Ago moment={updated_at ?? created_at} /> },
];

function addSecret(vault: Vault): Action {
  return edited({
    name: 'add-secret',
    label: 'Add secret',
    method: 'POST',
    path: '/vault_secrets',
    form: {
      label: 'Add secret',
      fields: [NAME, VALUE, DESCRIPTION_FIELD],
      body: ({ name = '', value, ...values }) => ({
        name: name.trim(),
        value,
        vault_id: vault.id,
        ...newAnnotations(values),
      }),
    },
  });
}

function changeSecret({ id, name }: Secret): Action {
  return edited({
    name: `change-${id}`,
    label: 'Change value',
    method: 'PATCH',
    path: `/vault_secrets/${id}`,
    form: { label: `Change the value of ${name}`, fields: [VALUE], body: ({ value }) => ({ value }) },
  });
}

function removeSecret({ id, name }: Secret): Action {
  return removal({
    title: `Delete the secret ${name}?`,
    effects: ['Policies that read it fail with the next request.'],
    submit: 'Delete secret',
    path: `/vault_secrets/${id}`,
  });
}
