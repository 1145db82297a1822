import { certificateAuthorities, tlsCertificates } from '../../../management/resources/certificate.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { readAuthority, readKeyPair } from '../../certificates/certificate-upload.ts';
import type { CertificateAuthorityRow, TlsCertificateRow } from '../../store/certificates.ts';
import type { ApiContext } from '../api-context.ts';
import type { Actions } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { createRow, type Stored, storedActions } from './stored-actions.ts';

export function tlsCertificateActions({ store, links }: ApiContext): Actions<typeof tlsCertificates> {
  const { database, tlsCertificates: rows } = store;
  const stored: Stored<typeof tlsCertificates, TlsCertificateRow> = {
    resource: tlsCertificates,
    rows,
    shown: ({ private_key: _, facts, ...row }) => ({ ...row, uri: links.of(tlsCertificates, row.id), ...facts }),
    checkRemoval: ({ issued_at }) => {
      if (issued_at === null) return;
      throw refuse(
        400,
        1966,
        "the certificate belongs to a reserved domain's certificate management policy; detach the policy instead",
      );
    },
    inUse: [WRONG_VALUE, 'in use: a reserved domain uses this certificate'],
  };
  return {
    ...storedActions(database, stored),
    async create({ description = null, metadata = null, certificate_pem, private_key_pem }, caller) {
      const { leaf, key } = readKeyPair(certificate_pem, private_key_pem);
      const facts = (await loadFacts()).certificateFacts(leaf, key);
      return database.write(() => {
        const common = { id: store.ids.next('cert'), created_at: store.now(), description, metadata };
        return stored.shown(
          rows.insertWithKey({ ...common, certificate_pem, facts, issued_at: null }, private_key_pem),
        );
      }, caller);
    },
  };
}

export function certificateAuthorityActions({ store, links }: ApiContext): Actions<typeof certificateAuthorities> {
  const stored: Stored<typeof certificateAuthorities, CertificateAuthorityRow> = {
    resource: certificateAuthorities,
    rows: store.certificateAuthorities,
    shown: ({ facts, ...row }) => ({ ...row, uri: links.of(certificateAuthorities, row.id), ...facts }),
    inUse: [WRONG_VALUE, 'in use: a TLS edge uses this certificate authority'],
  };
  return {
    ...storedActions(store.database, stored),
    async create({ ca_pem, ...sent }, caller) {
      const certificate = readAuthority(ca_pem);
      const facts = (await loadFacts()).authorityFacts(certificate);
      return createRow(store, stored, sent, caller, (common) => ({ ...common, ca_pem, facts }));
    },
  };
}

/** Loaded on first use: parsing X.509 extensions takes a library of 7 MB in memory. */
function loadFacts(): Promise<typeof import('../../certificates/certificate-facts.ts')> {
  return import('../../certificates/certificate-facts.ts');
}
