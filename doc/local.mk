# doc
dist_man_MANS += doc/sbxsv.1 doc/sbxsv-api.7 doc/sbxsv-init.8 doc/sbxsv-proxy.8 doc/sbxsvd.8
dist_doc_DATA += doc/design.md doc/SECURITY.md
dist_man_MANS += doc/sbxsv.app.5 doc/sbxsv.conf.5
