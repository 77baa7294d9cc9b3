# What libibverbs.pyx uses of infiniband/verbs.h, the header of libibverbs.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "infiniband/verbs.h" nogil:
    struct ibv_device:
        pass

    struct ibv_pd:
        pass

    struct ibv_context:
        int async_fd

    struct ibv_comp_channel:
        int fd

    struct ibv_cq:
        pass

    struct ibv_qp:
        uint32_t qp_num

    struct ibv_srq:
        pass

    struct ibv_srq_attr:
        uint32_t max_wr
        uint32_t max_sge

    struct ibv_srq_init_attr:
        ibv_srq_attr attr

    struct ibv_mr:
        uint32_t lkey
        uint32_t rkey

    struct ibv_device_attr:
        char[64] fw_ver

    struct ibv_packet_pacing_caps:
        uint32_t qp_rate_limit_min
        uint32_t qp_rate_limit_max
        uint32_t supported_qpts

    struct ibv_device_attr_ex:
        ibv_packet_pacing_caps packet_pacing_caps

    struct ibv_query_device_ex_input:
        pass

    struct ibv_qp_rate_limit_attr:
        uint32_t rate_limit

    struct ibv_port_attr:
        int state
        int active_mtu
        uint32_t max_msg_sz
        uint8_t link_layer

    union ibv_gid:
        uint8_t[16] raw

    struct ibv_global_route:
        ibv_gid dgid
        uint32_t flow_label
        uint8_t sgid_index
        uint8_t hop_limit
        uint8_t traffic_class

    struct ibv_ah_attr:
        ibv_global_route grh
        uint8_t is_global
        uint8_t port_num

    struct ibv_qp_cap:
        uint32_t max_send_wr
        uint32_t max_recv_wr
        uint32_t max_send_sge
        uint32_t max_recv_sge
        uint32_t max_inline_data

    struct ibv_qp_init_attr:
        ibv_cq *send_cq
        ibv_cq *recv_cq
        ibv_srq *srq
        ibv_qp_cap cap
        int qp_type

    struct ibv_qp_attr:
        int qp_state
        int path_mtu
        uint32_t rq_psn
        uint32_t sq_psn
        uint32_t dest_qp_num
        int qp_access_flags
        ibv_ah_attr ah_attr
        uint16_t pkey_index
        uint8_t max_rd_atomic
        uint8_t max_dest_rd_atomic
        uint8_t min_rnr_timer
        uint8_t port_num
        uint8_t timeout
        uint8_t retry_cnt
        uint8_t rnr_retry

    struct ibv_sge:
        uint64_t addr
        uint32_t length
        uint32_t lkey

    struct _rdma:
        uint64_t remote_addr
        uint32_t rkey

    union _wr:
        _rdma rdma

    struct ibv_send_wr:
        uint64_t wr_id
        ibv_send_wr *next
        ibv_sge *sg_list
        int num_sge
        int opcode
        unsigned int send_flags
        uint32_t imm_data
        _wr wr

    struct ibv_recv_wr:
        uint64_t wr_id
        ibv_recv_wr *next
        ibv_sge *sg_list
        int num_sge

    struct ibv_wc:
        uint64_t wr_id
        int status
        int opcode
        uint32_t byte_len
        uint32_t imm_data
        uint32_t qp_num
        unsigned int wc_flags

    int IBV_QPT_RC, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS
    int IBV_QP_STATE, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS, IBV_QP_AV
    int IBV_QP_PATH_MTU, IBV_QP_DEST_QPN, IBV_QP_RQ_PSN, IBV_QP_MAX_DEST_RD_ATOMIC
    int IBV_QP_MIN_RNR_TIMER, IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY
    int IBV_QP_SQ_PSN, IBV_QP_MAX_QP_RD_ATOMIC
    int IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_REMOTE_WRITE
    int IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM
    int IBV_WC_RECV, IBV_WC_WITH_IMM
    int IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE
    unsigned int IBV_SEND_SIGNALED

    ibv_device **ibv_get_device_list(int *)
    void ibv_free_device_list(ibv_device **)
    const char *ibv_get_device_name(ibv_device *)
    ibv_context *ibv_open_device(ibv_device *)
    int ibv_close_device(ibv_context *)
    int ibv_query_device(ibv_context *, ibv_device_attr *)
    int ibv_query_device_ex(
        ibv_context *, ibv_query_device_ex_input *, ibv_device_attr_ex *
    )
    int ibv_modify_qp_rate_limit(ibv_qp *, ibv_qp_rate_limit_attr *)
    int ibv_query_port(ibv_context *, uint8_t, ibv_port_attr *)
    int ibv_query_gid(ibv_context *, uint8_t, int, ibv_gid *)
    ibv_pd *ibv_alloc_pd(ibv_context *)
    int ibv_dealloc_pd(ibv_pd *)
    ibv_mr *ibv_reg_mr(ibv_pd *, void *, size_t, int)
    int ibv_dereg_mr(ibv_mr *)
    ibv_comp_channel *ibv_create_comp_channel(ibv_context *)
    int ibv_destroy_comp_channel(ibv_comp_channel *)
    ibv_cq *ibv_create_cq(ibv_context *, int, void *, ibv_comp_channel *, int)
    int ibv_destroy_cq(ibv_cq *)
    int ibv_poll_cq(ibv_cq *, int, ibv_wc *)
    int ibv_req_notify_cq(ibv_cq *, int)
    int ibv_get_cq_event(ibv_comp_channel *, ibv_cq **, void **)
    void ibv_ack_cq_events(ibv_cq *, unsigned int)
    const char *ibv_wc_status_str(int)
    ibv_qp *ibv_create_qp(ibv_pd *, ibv_qp_init_attr *)
    int ibv_modify_qp(ibv_qp *, ibv_qp_attr *, int)
    int ibv_destroy_qp(ibv_qp *)
    int ibv_post_send(ibv_qp *, ibv_send_wr *, ibv_send_wr **)
    int ibv_post_recv(ibv_qp *, ibv_recv_wr *, ibv_recv_wr **)
    ibv_srq *ibv_create_srq(ibv_pd *, ibv_srq_init_attr *)
    int ibv_destroy_srq(ibv_srq *)
    int ibv_post_srq_recv(ibv_srq *, ibv_recv_wr *, ibv_recv_wr **)
