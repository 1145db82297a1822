import {
  type CertificateAuthority,
  certificateAuthorities,
  type TlsCertificate,
  tlsCertificates,
} from '../../../management/resources/certificate.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { readAuthority, readKeyPair } from '../../certificates/certificate-upload.ts';
import type { CertificateAuthorityRow, TlsCertificateRow } from '../../store/certificates.ts';
import type { ApiContext } from '../api-context.ts';
import { refuse } from '../refuse.ts';
import type { Actions } from '../resource-router.ts';
import { deleteUnlessUsed, storedActions } from './stored-actions.ts';

export function tlsCertificateActions({ store, links }: ApiContext): Actions<typeof tlsCertificates> {
  const { database, tlsCertificates: rows } = store;
  const shown = ({ private_key: _, facts, ...row }: TlsCertificateRow): TlsCertificate => ({
    ...row,
    uri: links.of(tlsCertificates, row.id),
    ...facts,
  });
  return {
    ...storedActions(database, {
      resource: tlsCertificates,
      rows,
      shown,
      remove: ({ id, issued_at }) => {
        if (issued_at !== null)
          throw refuse(
            400,
            1966,
            "the certificate belongs to a reserved domain's certificate management policy; detach the policy instead",
          );
        deleteUnlessUsed(() => rows.delete(id), WRONG_VALUE, 'in use: a reserved domain uses this certificate');
      },
    }),
    async create({ description = null, metadata = null, certificate_pem, private_key_pem }) {
      const { leaf, key } = readKeyPair(certificate_pem, private_key_pem);
      const facts = (await loadFacts()).certificateFacts(leaf, key);
      return database.write(() => {
        const common = { id: store.ids.next('cert'), created_at: store.now(), description, metadata };
        return shown(rows.insertWithKey({ ...common, certificate_pem, facts, issued_at: null }, private_key_pem));
      });
    },
  };
}

export function certificateAuthorityActions({ store, links }: ApiContext): Actions<typeof certificateAuthorities> {
  const { database, certificateAuthorities: rows } = store;
  const shown = ({ facts, ...row }: CertificateAuthorityRow): CertificateAuthority => ({
    ...row,
    uri: links.of(certificateAuthorities, row.id),
    ...facts,
  });
  return {
    ...storedActions(database, {
      resource: certificateAuthorities,
      rows,
      shown,
      remove: ({ id }) =>
        deleteUnlessUsed(() => rows.delete(id), WRONG_VALUE, 'in use: a TLS edge uses this certificate authority'),
    }),
    async create({ description = null, metadata = null, ca_pem }) {
      const certificate = readAuthority(ca_pem);
      const facts = (await loadFacts()).authorityFacts(certificate);
      return database.write(() => {
        const row = { id: store.ids.next('ca'), created_at: store.now(), description, metadata, ca_pem, facts };
        rows.insert(row);
        return shown(row);
      });
    },
  };
}

/** Loaded on first use: parsing X.509 extensions takes a library of 7 MB in memory. */
function loadFacts(): Promise<typeof import('../../certificates/certificate-facts.ts')> {
  return import('../../certificates/certificate-facts.ts');
}
